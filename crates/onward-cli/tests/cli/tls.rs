//! A server behind TLS: the commands check whom they speak to.

use std::process::Command;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::place::server::Server;
use crate::place::{Ended, Place, text};

/// Makes an authority, and a certificate of it for `localhost`, in the folder of this place.
fn papers(place: &Place) {
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        command.args(arguments.split_whitespace()).current_dir(place.path("."));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let made = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {made} -days 2 -keyout ca.key -out ca.pem -subj /CN=ca"));
    openssl(&format!("req {made} -keyout own.key -out own.csr -subj /CN=localhost"));
    std::fs::write(place.path("names"), "subjectAltName = DNS:localhost\n").unwrap();
    openssl(
        "x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names \
         -out own.pem",
    );
}

/// Takes TLS off each connection, and hands it on to the server.
async fn proxy(place: &Place, to: String) -> u16 {
    let certificate = CertificateDer::from_pem_file(place.path("own.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(place.path("own.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // Whoever does not trust it hangs up.
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let mut server = TcpStream::connect(&to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
            }
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_checked_for_its_authority_and_its_name() {
    let place = Place::new();
    let id = place.start(&["work"]);
    let server = Server::of(&place);
    papers(&place);
    let port = proxy(&place, server.address.clone()).await;
    let ask = |host: &str, authority: &str| {
        let url = format!("https://{host}:{port}");
        let mut command = place.command(&["--server", &url, "runs", "list", "-o", "ids"]);
        command.env_remove("SSL_CERT_DIR").env("SSL_CERT_FILE", place.path(authority));
        Ended::from(command.output().unwrap())
    };
    let trusted = ask("localhost", "ca.pem");
    assert_eq!((trusted.code, trusted.stdout), (0, format!("{id}\n")), "{}", trusted.stderr);
    let other = place.path("other.pem");
    std::fs::copy(place.path("own.pem"), &other).unwrap();
    for refused in [ask("localhost", text(&other)), ask("127.0.0.1", "ca.pem")] {
        assert_eq!(refused.code, 4, "{}", refused.stderr);
        assert!(refused.stderr.contains("SSL_CERT_FILE"), "{}", refused.stderr);
        assert_eq!(refused.stdout, "");
    }
}
