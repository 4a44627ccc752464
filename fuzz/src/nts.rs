//! Cookie keys of a server and session of a client for the NTS targets; constant and not secret.

use std::sync::LazyLock;
use std::time::Duration;

use horolog_nts::{AeadAlgorithm, COOKIE_LEN_MAX, CookieKeys, CookieMasterSecret, SessionKeys};
use horolog_time::Timestamp;

static COOKIE_KEYS: LazyLock<CookieKeys> = LazyLock::new(|| {
    let secret = CookieMasterSecret::from_bytes([0x42; 32]);
    let now = Timestamp::from_timespec(1_700_000_000, 0);
    CookieKeys::new(&secret, Duration::from_hours(24), 1, now)
});

/// Returns the server's cookie keys.
#[must_use]
pub fn cookie_keys() -> &'static CookieKeys {
    &COOKIE_KEYS
}

/// Returns a session whose algorithm the lowest bit of `kind` selects.
///
/// # Panics
/// Never: the keys have the length of the algorithm.
#[must_use]
pub fn session(kind: u8) -> SessionKeys {
    let algorithm = AeadAlgorithm::ALL[usize::from(kind & 1)];
    let len = algorithm.key_len();
    SessionKeys::new(algorithm, &[kind; 32][..len], &[!kind; 32][..len]).expect("lengths fit")
}

/// Returns a cookie with the keys of `session`.
#[must_use]
pub fn cookie(session: &SessionKeys) -> Vec<u8> {
    let mut cookie = vec![0; COOKIE_LEN_MAX];
    let len = COOKIE_KEYS.seal(session, [9; 16], &mut cookie);
    cookie.truncate(len);
    cookie
}
