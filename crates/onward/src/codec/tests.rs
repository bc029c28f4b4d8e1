//! What the codecs do to a payload, and what they refuse.
//!
//! Owns: the tests of this module. Never needs a store.

use super::*;
use crate::limits::PAYLOAD_BYTES_MAX;

const PLACE: PayloadPlace<'static> = PayloadPlace::Input { run: RunId::from_u128(7) };

/// A codec that writes whatever it is given, under the name of another.
#[derive(Debug)]
struct Marked(&'static str);

impl Codec for Marked {
    fn name(&self) -> &str {
        self.0
    }

    fn encode(&self, _: &PayloadPlace<'_>, plain: &[u8]) -> Result<Option<Encoded>, CodecError> {
        Ok(Some(Encoded::new(plain.iter().rev().copied().collect())))
    }

    fn decode(&self, _: &PayloadPlace<'_>, encoded: &Encoded) -> Result<Vec<u8>, CodecError> {
        Ok(encoded.bytes.iter().rev().copied().collect())
    }
}

fn coding(codecs: Vec<Arc<dyn Codec>>) -> Coding {
    codecs.into_iter().fold(Coding::new(), Coding::and)
}

fn roundtrip(coding: &Coding, plain: &str) -> String {
    let stored = coding.encode(&PLACE, plain).unwrap();
    let stored = stored.unwrap_or_else(|| plain.to_owned());
    assert!(is_json(&stored), "{stored}");
    coding.decode(&PLACE, &stored).unwrap().unwrap_or(stored)
}

#[test]
fn without_a_codec_a_payload_is_stored_as_it_is() {
    let none = Coding::new();
    assert_eq!(none.encode(&PLACE, "{\"a\":1}").unwrap(), None);
    assert_eq!(none.decode(&PLACE, "{\"a\":1}").unwrap(), None);
}

#[test]
fn a_payload_that_looks_like_an_envelope_is_put_into_one() {
    let inner = coding(vec![Arc::new(Marked("a"))]).encode(&PLACE, "1").unwrap().unwrap();
    for coding in [Coding::new(), coding(vec![Arc::new(Marked("a"))])] {
        for plain in [inner.as_str(), "{\"$onward\":9}", "{\"$onward\":\"x\"}"] {
            let stored = coding.encode(&PLACE, plain).unwrap().unwrap();
            assert_ne!(stored, plain);
            assert_eq!(coding.decode(&PLACE, &stored).unwrap().as_deref(), Some(plain));
        }
    }
}

#[test]
fn layers_are_undone_in_the_reverse_order() {
    let two = coding(vec![Arc::new(Marked("a")), Arc::new(Marked("b"))]);
    let stored = two.encode(&PLACE, "[1,2]").unwrap().unwrap();
    let layers = "\"layers\":[{\"codec\":\"a\"},{\"codec\":\"b\"}]";
    assert!(stored.contains(layers), "{stored}");
    assert_eq!(two.decode(&PLACE, &stored).unwrap().as_deref(), Some("[1,2]"));
}

#[test]
fn a_missing_codec_and_a_damaged_envelope_are_told() {
    let stored = coding(vec![Arc::new(Marked("a"))]).encode(&PLACE, "1").unwrap().unwrap();
    let why = |coding: &Coding, stored: &str| coding.decode(&PLACE, stored).unwrap_err();
    let missing = why(&Coding::new(), &stored);
    assert_eq!(missing.to_string(), "the input: no codec \"a\" is set up here");
    assert_eq!(missing.run, PLACE.run());
    let cut = why(&Coding::new(), &stored[..stored.len() - 3]);
    assert!(cut.why.contains("damaged"), "{cut}");
    let newer = why(&Coding::new(), &stored.replacen('1', "2", 1));
    assert!(newer.why.contains("newer version (2)"), "{newer}");
}

#[cfg(feature = "compression")]
mod compressed {
    use super::*;

    fn lz4() -> Coding {
        coding(vec![Arc::new(Compression::new())])
    }

    #[test]
    fn only_what_gets_smaller_is_compressed() {
        let short = format!("\"{}\"", "x".repeat(400));
        assert_eq!(lz4().encode(&PLACE, &short).unwrap(), None, "too short to gain");
        let noise: String =
            (0..2_000_u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect();
        let noise = format!("\"{noise}\"");
        let stored = lz4().encode(&PLACE, &noise).unwrap();
        assert!(stored.is_none_or(|stored| stored.len() < noise.len()));
        let text = format!("\"{}\"", "the same again ".repeat(200));
        let stored = lz4().encode(&PLACE, &text).unwrap().unwrap();
        assert!(stored.len() < text.len() / 10, "{}", stored.len());
        assert_eq!(roundtrip(&lz4(), &text), text);
    }

    #[test]
    fn the_largest_payload_survives() {
        let text = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2));
        assert_eq!(roundtrip(&lz4(), &text), text);
    }

    #[test]
    fn what_was_compressed_is_read_by_whoever_has_a_codec() {
        let text = format!("\"{}\"", "the same again ".repeat(200));
        let stored = lz4().encode(&PLACE, &text).unwrap().unwrap();
        let other = coding(vec![Arc::new(Marked("a"))]);
        assert_eq!(other.decode(&PLACE, &stored).unwrap(), Some(text));
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let bomb = lz4_flex::block::compress(&vec![b' '; 64 * 1024 * 1024]);
        for said in [u32::MAX, 64 * 1024 * 1024, 1_000] {
            let bytes = [&said.to_be_bytes()[..], &bomb].concat();
            let refused = Compression::new().decode(&PLACE, &Encoded::new(bytes)).unwrap_err();
            let text = refused.to_string();
            assert!(text.contains("over the limit") || text.contains("damaged"), "{text}");
        }
        assert!(Compression::new().decode(&PLACE, &Encoded::new(vec![1])).is_err());
    }
}

#[cfg(feature = "encryption")]
mod encrypted {
    use super::*;
    use crate::Code;

    fn secret(byte: u8) -> SecretKey {
        SecretKey::new([byte; 32])
    }

    fn ring(id: &str, byte: u8) -> KeyRing {
        KeyRing::new(id, &secret(byte), secret(0)).unwrap()
    }

    fn with(ring: KeyRing) -> Coding {
        coding(vec![Arc::new(Encryption::new(ring))])
    }

    fn sealed(place: PayloadPlace<'_>, plain: &str) -> String {
        with(ring("k1", 1)).encode(&place, plain).unwrap().unwrap()
    }

    #[test]
    fn nothing_of_a_payload_shows() {
        let stored = sealed(PLACE, "\"attack at dawn\"");
        assert!(!stored.contains("attack") && stored.contains("\"key\":\"k1\""), "{stored}");
        assert_eq!(describe(&Json::stored(stored)).unwrap(), "encrypted with key \"k1\"");
    }

    #[test]
    fn the_same_payload_at_the_same_place_is_the_same_stored() {
        assert_eq!(sealed(PLACE, "1"), sealed(PLACE, "1"));
        assert_ne!(sealed(PLACE, "1"), sealed(PLACE, "2"));
        let other = PayloadPlace::Input { run: RunId::from_u128(8) };
        assert_ne!(sealed(PLACE, "1"), sealed(other, "1"));
    }

    #[test]
    fn a_payload_of_another_place_is_refused() {
        let run = RunId::from_u128(7);
        let other = PayloadPlace::Output { run };
        let refused = with(ring("k1", 1)).decode(&PLACE, &sealed(other, "1")).unwrap_err();
        assert!(refused.why.contains("comes from another place"), "{refused}");
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let stored = sealed(PLACE, "[1,2,3]");
        let (head, data) = stored.split_once("\"data\":\"").unwrap();
        let coding = with(ring("k1", 1));
        for at in 0..data.len() - 4 {
            let mut changed = data.as_bytes().to_vec();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let text = format!("{head}\"data\":\"{}", String::from_utf8(changed).unwrap());
            assert!(coding.decode(&PLACE, &text).is_err(), "byte {at}");
        }
    }

    #[test]
    fn an_old_key_reads_and_the_current_one_writes() {
        let old = sealed(PLACE, "\"old\"");
        let both = with(ring("k2", 2).and("k1", &secret(1)).unwrap());
        assert_eq!(both.decode(&PLACE, &old).unwrap().as_deref(), Some("\"old\""));
        let new = both.encode(&PLACE, "\"new\"").unwrap().unwrap();
        assert!(new.contains("\"key\":\"k2\""), "{new}");
        let missing = with(ring("k1", 1)).decode(&PLACE, &new).unwrap_err();
        assert!(missing.why.contains("key \"k2\", which is not in the key ring"), "{missing}");
    }

    #[test]
    fn another_key_of_the_same_id_is_refused() {
        let wrong = with(ring("k1", 9)).decode(&PLACE, &sealed(PLACE, "1")).unwrap_err();
        assert!(wrong.why.contains("does not open with key \"k1\""), "{wrong}");
    }

    #[test]
    fn plain_payloads_are_read_unless_they_are_refused() {
        assert_eq!(with(ring("k1", 1)).decode(&PLACE, "1").unwrap(), None);
        let strict = coding(vec![Arc::new(Encryption::new(ring("k1", 1)).refuse_plain())]);
        let wrapped = Coding::new().wrap(&PLACE, "1").unwrap();
        for plain in ["1", wrapped.as_str()] {
            let refused = strict.decode(&PLACE, plain).unwrap_err();
            assert!(refused.why.contains("plain payloads are refused"), "{refused}");
        }
        assert_eq!(roundtrip(&strict, "1"), "1");
    }

    #[test]
    fn a_fingerprint_is_keyed_and_outlives_a_change_of_keys() {
        let plain = Fingerprint::of(b"yes");
        let (one, two) = (with(ring("k1", 1)), with(ring("k2", 2)));
        assert_ne!(one.fingerprint(plain), plain);
        assert_eq!(one.fingerprint(plain), two.fingerprint(plain));
        let other = with(KeyRing::new("k1", &secret(1), secret(5)).unwrap());
        assert_ne!(one.fingerprint(plain), other.fingerprint(plain));
    }

    #[test]
    fn a_ring_is_read_from_a_text_and_shows_no_key() {
        let secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let text = format!(
            "# keys\ncurrent k2 # since May\nkey k2 {secret}\n\nkey k1 {secret}; fingerprint {secret}"
        );
        let ring = KeyRing::parse(&text).unwrap();
        let shown = format!("{ring:?} {:?}", Encryption::new(ring.clone()));
        assert!(
            shown.contains("k1") && !shown.contains("AAEC") && !shown.contains("0, 1"),
            "{shown}"
        );
        let bad = [
            "current k1".to_owned(),
            format!("key k1 {secret}\nfingerprint {secret}"),
            format!("current k1\nkey k1 {secret}"),
            format!("current k2\nkey k1 {secret}\nfingerprint {secret}"),
            format!("current k1\nkey k1 {secret}\nkey k1 {secret}\nfingerprint {secret}"),
            format!("current k1\nkey k1 {}\nfingerprint {secret}", &secret[4..]),
            format!("current k1\nkey k1 !!!{secret}\nfingerprint {secret}"),
            format!("current k1\nkey {secret}\nfingerprint {secret}"),
        ];
        for text in bad {
            let error = KeyRing::parse(&text).unwrap_err();
            assert_eq!(error.code(), Code::InvalidKeyRing);
            assert!(!error.to_string().contains("AAEC"), "{error}");
        }
    }

    mod any {
        use proptest::prelude::*;

        use super::*;

        proptest! {
            /// Whatever is stored comes back, through every set of codecs.
            #[test]
            fn any_payload_comes_back(text in "\\PC{0,300}", times in 1_usize..200) {
                let plain = serde_json::to_string(&text.repeat(times)).unwrap();
                let encryption: Arc<dyn Codec> = Arc::new(Encryption::new(ring("k1", 1)));
                let mut sets = vec![vec![], vec![Arc::clone(&encryption)]];
                #[cfg(feature = "compression")]
                {
                    let lz4: Arc<dyn Codec> = Arc::new(Compression::new());
                    sets.push(vec![Arc::clone(&lz4)]);
                    sets.push(vec![lz4, encryption]);
                }
                for set in sets {
                    prop_assert_eq!(roundtrip(&coding(set), &plain), plain.clone());
                }
            }
        }
    }
}
