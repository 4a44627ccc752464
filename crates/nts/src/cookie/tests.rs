//! Cookies: round trips, rotation, agreement between servers, and refusals.

use proptest::prelude::*;

use super::*;

const DAY_S: i64 = 86_400;
const DAY: Duration = Duration::from_hours(24);

fn at(seconds: i64) -> Timestamp<Utc> {
    Timestamp::from_timespec(seconds, 0)
}

fn keys(secret: u8, day: i64) -> CookieKeys {
    CookieKeys::new(&CookieMasterSecret::from_bytes([secret; 32]), DAY, 2, at(day * DAY_S))
}

fn session(algorithm: AeadAlgorithm) -> SessionKeys {
    let len = algorithm.key_len();
    SessionKeys::new(algorithm, &[0x11; 32][..len], &[0x22; 32][..len]).unwrap()
}

fn sealed(keys: &CookieKeys, algorithm: AeadAlgorithm) -> Vec<u8> {
    let mut cookie = vec![0; COOKIE_LEN_MAX];
    let len = keys.seal(&session(algorithm), [5; 16], &mut cookie);
    cookie.truncate(len);
    cookie
}

fn opens(keys: &CookieKeys, cookie: &[u8]) -> bool {
    keys.open(cookie).is_some()
}

#[test]
fn lengths_are_constant_and_fit_extension_fields() {
    let keys = keys(1, 100);
    for (algorithm, len) in [(AeadAlgorithm::AesSivCmac256, 100), (AeadAlgorithm::Aes128GcmSiv, 68)]
    {
        assert_eq!(cookie_len(algorithm), len);
        assert_eq!(sealed(&keys, algorithm).len(), len);
        assert!(len.is_multiple_of(4) && len <= COOKIE_LEN_MAX);
        let mut short = vec![0; len - 1];
        assert_eq!(keys.seal(&session(algorithm), [5; 16], &mut short), 0);
        assert_eq!(short, vec![0; len - 1]);
    }
}

#[test]
fn a_cookie_opens_from_the_period_before_its_own_to_the_last_retained_one() {
    let cookie = sealed(&keys(1, 100), AeadAlgorithm::AesSivCmac256);
    let opening: Vec<i64> = (95..=105).filter(|day| opens(&keys(1, *day), &cookie)).collect();
    assert_eq!(opening, [99, 100, 101, 102]);
}

#[test]
fn servers_agree_through_the_secret_and_the_period_alone() {
    let cookie = sealed(&keys(1, 100), AeadAlgorithm::Aes128GcmSiv);
    // Another server, started days before, renewed since.
    let other = keys(1, 90);
    assert!(!opens(&other, &cookie));
    assert!(other.is_rotation_due(at(100 * DAY_S)));
    let renewed = other.rotated(at(101 * DAY_S - 1));
    assert_eq!(renewed.period(), 100);
    assert!(!renewed.is_rotation_due(at(100 * DAY_S)));
    assert!(opens(&renewed, &cookie));
    assert!(!opens(&keys(2, 100), &cookie), "another secret");
    let secret = CookieMasterSecret::from_bytes([1; 32]);
    // Half the period's length at a time that gives the same number.
    let hasty = CookieKeys::new(&secret, DAY / 2, 2, at(100 * DAY_S / 2));
    assert_eq!(hasty.period(), 100);
    assert!(!opens(&hasty, &cookie), "another length of periods");
}

/// HKDF-SHA256 of 32 bytes of 1 for period 100 of a day each, computed with another
/// implementation (Python's `hmac`).
const PERIOD_KEY: [u128; 2] =
    [0xa2ca_0758_2554_4513_e16b_c71b_241d_3312, 0x5016_1196_8213_7654_42aa_ad3d_6a60_af16];

#[test]
fn the_format_stays() {
    use aes_siv::KeyInit as _;
    let cookie = sealed(&keys(1, 100), AeadAlgorithm::AesSivCmac256);
    let (open, sealed) = cookie.split_at(20);
    assert_eq!(open, [&[0, 0, 100, 15][..], &[5; 16]].concat());
    let key: Vec<u8> = PERIOD_KEY.iter().flat_map(|half| half.to_be_bytes()).collect();
    let mut oracle = aes_siv::siv::Aes128Siv::new_from_slice(&key).unwrap();
    let text = oracle.decrypt([open], sealed).unwrap();
    assert_eq!(text, [[0x11; 32], [0x22; 32]].concat());
}

#[test]
fn the_first_period_and_times_before_it_have_keys() {
    for seconds in [0, -5] {
        let keys = CookieKeys::new(
            &CookieMasterSecret::from_bytes([1; 32]),
            Duration::ZERO,
            9,
            at(seconds),
        );
        assert_eq!(keys.period(), 0);
        assert!(opens(&keys, &sealed(&keys, AeadAlgorithm::AesSivCmac256)));
    }
}

#[test]
fn nothing_secret_is_printed() {
    let text = format!("{:?} {:?}", keys(0xab, 100), session(AeadAlgorithm::AesSivCmac256));
    assert!(!text.contains("171") && !text.contains("ab") && !text.contains("17, 17"), "{text}");
}

proptest! {
    #[test]
    fn keys_round_trip(c2s: [u8; 32], s2c: [u8; 32], nonce: [u8; 16], siv: bool) {
        let algorithm = if siv { AeadAlgorithm::AesSivCmac256 } else { AeadAlgorithm::Aes128GcmSiv };
        let len = algorithm.key_len();
        let keys = keys(1, 100);
        let session = SessionKeys::new(algorithm, &c2s[..len], &s2c[..len]).unwrap();
        let mut cookie = [0; COOKIE_LEN_MAX];
        let cookie_len = keys.seal(&session, nonce, &mut cookie);
        let again = keys.open(&cookie[..cookie_len]).unwrap();
        prop_assert_eq!(again.algorithm(), algorithm);
        prop_assert_eq!((again.c2s(), again.s2c()), (&c2s[..len], &s2c[..len]));
    }

    #[test]
    fn one_changed_byte_is_enough(at in 0..100usize, change in 1..=255u8) {
        let keys = keys(1, 100);
        let mut cookie = sealed(&keys, AeadAlgorithm::AesSivCmac256);
        cookie[at] ^= change;
        prop_assert!(!opens(&keys, &cookie));
    }

    #[test]
    fn any_bytes_are_no_cookie(bytes in prop::collection::vec(any::<u8>(), 0..160)) {
        prop_assert!(!opens(&keys(1, 100), &bytes));
    }
}
