//! The hosts of a URL that names several.
//!
//! Owns: a configuration for each of them, and what is said where none answered. Never connects.

use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

use super::fault::Fault;

/// Where a server listens whose URL names no port.
const PORT: u16 = 5432;

/// A configuration for each host. One that names none is left to the driver, which says so.
pub(super) fn each(config: &Config) -> Vec<Config> {
    let count = config.get_hosts().len().max(config.get_hostaddrs().len());
    match count {
        0 | 1 => vec![config.clone()],
        count => (0..count).map(|place| one(config, place)).collect(),
    }
}

/// As `config`, for one of its hosts alone. The driver has no way to take hosts away. Of several hosts the
/// one is meant that takes writes: a standby that is named first would refuse every one.
fn one(config: &Config, place: usize) -> Config {
    let mut one = Config::new();
    match config.get_hosts().get(place) {
        Some(Host::Tcp(name)) => drop(one.host(name)),
        #[cfg(unix)]
        Some(Host::Unix(path)) => drop(one.host_path(path)),
        None => {}
    }
    if let Some(address) = config.get_hostaddrs().get(place) {
        one.hostaddr(*address);
    }
    one.port(port(config, place));
    let session = match config.get_target_session_attrs() {
        TargetSessionAttrs::Any => TargetSessionAttrs::ReadWrite,
        wanted => wanted,
    };
    config.get_user().map(|user| one.user(user));
    config.get_password().map(|password| one.password(password));
    config.get_dbname().map(|name| one.dbname(name));
    config.get_options().map(|options| one.options(options));
    config.get_application_name().map(|name| one.application_name(name));
    config.get_connect_timeout().map(|timeout| one.connect_timeout(*timeout));
    config.get_tcp_user_timeout().map(|timeout| one.tcp_user_timeout(*timeout));
    config.get_keepalives_interval().map(|interval| one.keepalives_interval(interval));
    config.get_keepalives_retries().map(|retries| one.keepalives_retries(retries));
    one.keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .target_session_attrs(session)
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    one
}

/// One port is for all hosts, none is the usual one.
fn port(config: &Config, place: usize) -> u16 {
    let ports = config.get_ports();
    ports.get(place).or(ports.first()).copied().unwrap_or(PORT)
}

/// A host as it stands in a message, with its port.
pub(super) fn named(config: &Config) -> String {
    let name = match (config.get_hosts().first(), config.get_hostaddrs().first()) {
        (Some(Host::Tcp(name)), _) => name.clone(),
        #[cfg(unix)]
        (Some(Host::Unix(path)), _) => path.display().to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => "no host".to_owned(),
    };
    format!("{name}:{}", port(config, 0))
}

/// What each host said where none could be used; of which kind the outage is, says the last.
pub(super) fn none_answered(mut faults: Vec<Fault>) -> Fault {
    let Some(last) = faults.pop() else { return Fault::no_answer("the URL names no host") };
    match last {
        Fault::Outage(outage, why) => {
            let others = faults.into_iter().filter_map(|fault| match fault {
                Fault::Outage(_, why) => Some(why),
                _ => None,
            });
            let said: Vec<_> = others.chain([why]).collect();
            Fault::Outage(outage, said.join("; "))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_host_keeps_all_but_the_others() {
        let url =
            "postgres://app:pw@a:1,b:2/shop?application_name=x&target_session_attrs=read-write";
        let mut config: Config = url.parse().unwrap();
        config.connect_timeout(Duration::from_secs(3)).keepalives_idle(Duration::from_secs(9));
        let hosts = each(&config);
        assert_eq!(hosts.iter().map(named).collect::<Vec<_>>(), ["a:1", "b:2"]);
        // All that a configuration shows but the host is the same.
        let rest =
            |host: &Config| format!("{host:?}").replace("\"b\"", "\"a\"").replace("[2]", "[1]");
        assert_eq!(rest(&hosts[1]), rest(&hosts[0]));
        let alone: Config = "postgres://app:pw@a:1/shop?application_name=x\
                             &target_session_attrs=read-write"
            .parse()
            .unwrap();
        let mut alone = alone;
        alone.connect_timeout(Duration::from_secs(3)).keepalives_idle(Duration::from_secs(9));
        assert_eq!(format!("{:?}", hosts[0]), format!("{alone:?}"));
    }

    /// Fails where a standby that stands first in the URL is taken for the store.
    #[test]
    fn of_several_hosts_the_one_is_meant_that_takes_writes() {
        let meant = |url: &str| each(&url.parse().unwrap())[0].get_target_session_attrs();
        assert_eq!(meant("postgres://a,b/shop"), TargetSessionAttrs::ReadWrite);
        assert_eq!(
            meant("postgres://a,b/shop?target_session_attrs=any"),
            TargetSessionAttrs::ReadWrite
        );
        let asked = "postgres://a,b/shop?target_session_attrs=read-only";
        assert_eq!(meant(asked), TargetSessionAttrs::ReadOnly);
        assert_eq!(meant("postgres://a/shop"), TargetSessionAttrs::Any);
    }

    #[test]
    fn one_port_is_for_all_hosts() {
        let config: Config = "host=a,b port=7 user=app".parse().unwrap();
        assert_eq!(each(&config).iter().map(named).collect::<Vec<_>>(), ["a:7", "b:7"]);
    }
}
