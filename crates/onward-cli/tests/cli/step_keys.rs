//! `onward keys`, for the keys of steps.

use onward::{Failure, Onward};

use crate::place::Place;

/// Does a piece of work twice, so that its key has come of something and one came second.
async fn work(url: &str, key: &str) {
    let onward = Onward::open(url).await.unwrap();
    for _ in 0..2 {
        onward.once(key).run(async || Ok::<_, Failure>("sent".to_owned())).await.unwrap();
    }
}

#[tokio::test]
async fn step_keys_are_listed_shown_and_released() {
    let place = Place::new();
    for key in ["welcome-8", "welcome-7"] {
        work(&place.url(), key).await;
    }
    let listed = place.onward(&["keys", "steps", "-o", "ids"]).stdout;
    assert_eq!(listed, "welcome-7\nwelcome-8\n");
    let first = place.onward(&["keys", "steps", "--limit", "1"]);
    assert!(first.stdout.contains("welcome-7") && !first.stdout.contains("welcome-8"));
    assert!(first.stderr.contains("--after \"welcome-7\""), "{}", first.stderr);
    let rest = place.onward(&["keys", "steps", "--after", "welcome-7", "-o", "ids"]).stdout;
    assert_eq!(rest, "welcome-8\n");

    let shown = place.onward(&["keys", "step", "welcome-7"]).stdout;
    for said in ["done", "once/", "\"sent\"", "it is released", "1 more use with this key"] {
        assert!(shown.contains(said), "{said:?} is missing: {shown}");
    }
    let json = place.onward(&["keys", "step", "welcome-7", "-o", "json"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["state"], &json["result"]), (&"done".into(), &"sent".into()));
    assert_eq!(json["latest_duplicates"]["count"], 1);

    let released = place.onward(&["keys", "release", "welcome-7"]);
    assert_eq!(released.code, 0, "{}", released.stderr);
    let again = place.onward(&["keys", "release", "welcome-7"]);
    assert_eq!(again.code, 3, "{}", again.stderr);
    assert!(again.stderr.contains("is free"), "{}", again.stderr);
}

#[tokio::test]
async fn keys_that_are_kept_elsewhere_are_found_there() {
    let (place, elsewhere) = (Place::new(), Place::new());
    work(&elsewhere.url(), "welcome-7").await;
    let args = ["keys", "steps", "--keys", &elsewhere.url(), "-o", "ids"];
    assert_eq!(place.onward(&args).stdout, "welcome-7\n");
    assert!(!place.database().exists(), "the store itself is not needed");
}

#[test]
fn the_key_of_a_run_is_released_when_it_has_ended() {
    let place = Place::new();
    let run = place.start(&["bill", "--key", "order-7"]);
    let release = ["keys", "release", "--workflow", "bill", "order-7"];
    let live = place.onward(&release);
    assert_eq!(live.code, 1, "{}", live.stderr);
    assert!(live.stderr.contains("run_not_ended"), "{}", live.stderr);
    assert_eq!(place.onward(&["runs", "cancel", &run]).code, 0);
    let released = place.onward(&release);
    assert_eq!(released.code, 0, "{}", released.stderr);
    assert!(released.stderr.contains(&run), "{}", released.stderr);
    assert_eq!(place.onward(&release).code, 3, "nobody has it");
    assert_ne!(place.start(&["bill", "--key", "order-7"]), run);
}
