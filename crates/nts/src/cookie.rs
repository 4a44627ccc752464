//! Cookies of the server, whose format RFC 8915, section 6, leaves to the server, and the rotating
//! keys that seal them. Each key is derived from the master secret and the number of its rotation
//! period, so servers with the same secret and period length can open each other's cookies without
//! communication. This module reads no clock: the caller rotates the keys.
//!
//! A cookie, 68 or 100 bytes long:
//!
//! | bytes | content |
//! |---|---|
//! | 3 | the lowest 24 bits of the period's number, big endian |
//! | 1 | the number of the session's AEAD algorithm |
//! | 16 | nonce |
//! | 16 | tag of AES-SIV-CMAC-256, whose associated data is the 20 bytes before it |
//! | 2 × 16 or 2 × 32 | sealed: the key from client to server, the key from server to client |
//!
//! The period's number is Unix time divided by the period's length. Its key is the output of
//! HKDF-SHA256 (RFC 5869) without salt, with the master secret as input and, as context, the label
//! `horolog nts cookie 1` and two 64-bit big-endian numbers: the period's length in seconds and the
//! period's number.

use core::fmt;
use core::time::Duration;

use hkdf::Hkdf;
use horolog_time::{Timestamp, Utc};
use horolog_wire::ntp::nts::TAG_LEN;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::aead::siv::{BATCH, SivKey, is_equal, s2v_batch};
use crate::{AeadAlgorithm, CookieMasterSecret, SessionKeys};

/// Length of the longest cookie of this server, in bytes.
pub const COOKIE_LEN_MAX: usize = cookie_len(AeadAlgorithm::AesSivCmac256);
/// Default length of a rotation period, in which one key seals cookies.
pub const ROTATION_DEFAULT: Duration = Duration::from_hours(24);
/// Default number of past rotation periods whose cookies are still opened.
pub const PAST_PERIODS_DEFAULT: usize = 7;
/// Largest number of past rotation periods whose cookies can be opened.
pub const PAST_PERIODS_MAX: usize = 64;

/// Length of the nonce of a cookie, in bytes.
pub(crate) const COOKIE_NONCE_LEN: usize = 16;
const HEADER_LEN: usize = 4;
const TAG_OFFSET: usize = HEADER_LEN + COOKIE_NONCE_LEN;
const TEXT_OFFSET: usize = TAG_OFFSET + TAG_LEN;
const HKDF_LABEL: &[u8] = b"horolog nts cookie 1";

/// Returns the length of a cookie for a session with `algorithm`, in bytes.
#[must_use]
#[inline]
pub const fn cookie_len(algorithm: AeadAlgorithm) -> usize {
    TEXT_OFFSET + 2 * algorithm.key_len()
}

struct RotationPeriodKey {
    id: [u8; 3],
    key: SivKey,
}

impl RotationPeriodKey {
    fn derive(secret: &CookieMasterSecret, rotation_s: u64, period: u64) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        let context = [HKDF_LABEL, &rotation_s.to_be_bytes(), &period.to_be_bytes()].concat();
        let made = Hkdf::<Sha256>::new(None, secret.bytes()).expand(&context, &mut *bytes);
        debug_assert!(made.is_ok(), "HKDF-SHA256 gives up to 8,160 bytes");
        let [.., a, b, c] = period.to_be_bytes();
        Self { id: [a, b, c], key: SivKey::new(&*bytes) }
    }
}

/// Parts of a received cookie, and the key of its rotation period.
struct SealedCookie<'a> {
    algorithm: AeadAlgorithm,
    key: &'a SivKey,
    associated_data: &'a [u8],
    tag: &'a [u8; TAG_LEN],
    text: &'a [u8],
}

/// Keys of a server's cookies in one rotation period. Cookies are sealed with the key of this
/// period, and opened with it, with those of a number of past periods, and with that of the next
/// period, which a server whose clock is ahead may already use.
pub struct CookieKeys {
    secret: CookieMasterSecret,
    rotation_s: u64,
    past_periods: usize,
    period: u64,
    current: RotationPeriodKey,
    other_keys: Box<[RotationPeriodKey]>,
}

impl CookieKeys {
    /// Derives the keys for the time `now`. `rotation` is the length of a period, rounded down to
    /// whole seconds and raised to at least 1 s; `past_periods` is the number of past periods whose
    /// cookies are opened, limited to [`PAST_PERIODS_MAX`].
    #[must_use]
    pub fn new(
        secret: &CookieMasterSecret,
        rotation: Duration,
        past_periods: usize,
        now: Timestamp<Utc>,
    ) -> Self {
        let rotation_s = rotation.as_secs().max(1);
        Self::for_period(
            secret,
            rotation_s,
            past_periods.min(PAST_PERIODS_MAX),
            period_number(rotation_s, now),
        )
    }

    fn for_period(
        secret: &CookieMasterSecret,
        rotation_s: u64,
        past_periods: usize,
        period: u64,
    ) -> Self {
        let derive = |period| RotationPeriodKey::derive(secret, rotation_s, period);
        let past = (1..=past_periods as u64).filter_map(|back| period.checked_sub(back));
        let other_keys = past.chain(period.checked_add(1)).map(derive).collect();
        let current = derive(period);
        Self { secret: secret.clone(), rotation_s, past_periods, period, current, other_keys }
    }

    /// Returns true if `now` is in another rotation period than that of these keys.
    #[must_use]
    pub fn is_rotation_due(&self, now: Timestamp<Utc>) -> bool {
        period_number(self.rotation_s, now) != self.period
    }

    /// Derives the keys for the time `now` from the same secret, with the same length and number of
    /// periods.
    #[must_use]
    pub fn rotated(&self, now: Timestamp<Utc>) -> Self {
        let period = period_number(self.rotation_s, now);
        Self::for_period(&self.secret, self.rotation_s, self.past_periods, period)
    }

    /// Returns the number of the rotation period whose key seals cookies.
    #[must_use]
    pub const fn period(&self) -> u64 {
        self.period
    }

    /// Writes a sealed cookie that contains `keys` to the front of `out`. Returns its length
    /// ([`cookie_len`], a multiple of 4 bytes); 0 if `out` is too short. `nonce` must be random.
    pub fn seal(&self, keys: &SessionKeys, nonce: [u8; 16], out: &mut [u8]) -> usize {
        let len = cookie_len(keys.algorithm());
        let Some(cookie) = out.get_mut(..len) else { return 0 };
        self.write_unsealed(keys, &nonce, cookie);
        self.seal_batch(&mut [Some(cookie)]);
        len
    }

    /// Writes an unsealed cookie that contains `keys` to `cookie`, whose length must be
    /// [`cookie_len`].
    pub(crate) fn write_unsealed(
        &self,
        keys: &SessionKeys,
        nonce: &[u8; COOKIE_NONCE_LEN],
        cookie: &mut [u8],
    ) {
        let (unsealed, sealed) = cookie.split_at_mut(TAG_OFFSET);
        unsealed[..3].copy_from_slice(&self.current.id);
        unsealed[3] = keys.algorithm().number() as u8;
        unsealed[HEADER_LEN..].copy_from_slice(nonce);
        let (c2s, s2c) = sealed[TAG_LEN..].split_at_mut(keys.algorithm().key_len());
        c2s.copy_from_slice(keys.c2s());
        s2c.copy_from_slice(keys.s2c());
    }

    /// Seals up to [`BATCH`] cookies written by [`Self::write_unsealed`].
    pub(crate) fn seal_batch(&self, cookies: &mut [Option<&mut [u8]>]) {
        let SivKey { mac, ctr: stream } = &self.current.key;
        let mut associated_data = [&[][..]; BATCH];
        for (open, cookie) in associated_data.iter_mut().zip(&*cookies) {
            if let Some(cookie) = cookie {
                *open = &cookie[..TAG_OFFSET];
            }
        }
        let mut inputs = [None; BATCH];
        for ((job, cookie), open) in inputs.iter_mut().zip(&*cookies).zip(&associated_data) {
            if let Some(cookie) = cookie {
                let parts = core::slice::from_ref(open);
                *job = Some(mac.input(parts, &cookie[TEXT_OFFSET..]));
            }
        }
        let mut tags = [Default::default(); BATCH];
        s2v_batch(&inputs[..cookies.len()], &mut tags);
        for (cookie, tag) in cookies.iter_mut().zip(&tags) {
            if let Some(cookie) = cookie {
                let (front, text) = cookie.split_at_mut(TEXT_OFFSET);
                front[TAG_OFFSET..].copy_from_slice(tag);
                stream.apply_keystream(tag, text);
            }
        }
    }

    /// Opens `cookie` and returns the session keys in it; `None` if none of these keys sealed it.
    #[must_use]
    pub fn open(&self, cookie: &[u8]) -> Option<SessionKeys> {
        let mut keys = [None];
        self.open_batch(&[Some(cookie)], &mut keys);
        let [keys] = keys;
        keys
    }

    /// Opens up to [`BATCH`] cookies. Stores the session keys of each authentic one at its index in
    /// `keys`.
    pub(crate) fn open_batch(&self, cookies: &[Option<&[u8]>], keys: &mut [Option<SessionKeys>]) {
        let mut sealed = [const { None }; BATCH];
        let mut texts = [[0; COOKIE_LEN_MAX - TEXT_OFFSET]; BATCH];
        for ((cookie, sealed), text) in cookies.iter().zip(&mut sealed).zip(&mut texts) {
            *sealed = cookie.and_then(|cookie| self.parse_known(cookie));
            if let Some(sealed) = sealed {
                let text = &mut text[..sealed.text.len()];
                text.copy_from_slice(sealed.text);
                sealed.key.ctr.apply_keystream(sealed.tag, text);
            }
        }
        let mut inputs = [None; BATCH];
        for ((job, sealed), text) in inputs.iter_mut().zip(&sealed).zip(&texts) {
            if let Some(sealed) = sealed {
                let parts = core::slice::from_ref(&sealed.associated_data);
                *job = Some(sealed.key.mac.input(parts, &text[..sealed.text.len()]));
            }
        }
        let mut tags = [Default::default(); BATCH];
        s2v_batch(&inputs[..cookies.len()], &mut tags);
        for (((keys, sealed), text), tag) in keys.iter_mut().zip(&sealed).zip(&texts).zip(&tags) {
            if let Some(sealed) = sealed
                && is_equal(tag, sealed.tag)
            {
                *keys =
                    SessionKeys::from_concatenated(sealed.algorithm, &text[..sealed.text.len()]);
            }
        }
        // Wiped entirely, because a text that failed authentication may contain keys as well.
        texts.as_flattened_mut().fill(0);
        zeroize::optimization_barrier(&texts);
    }

    /// Splits a cookie into its parts; `None` if its length, algorithm or rotation period is not
    /// known.
    fn parse_known<'a>(&'a self, cookie: &'a [u8]) -> Option<SealedCookie<'a>> {
        let &[a, b, c, number, ..] = cookie else { return None };
        let algorithm = AeadAlgorithm::from_number(u16::from(number))?;
        if cookie.len() != cookie_len(algorithm) {
            return None;
        }
        let key = self.key_by_id([a, b, c])?;
        let (associated_data, sealed) = cookie.split_at(TAG_OFFSET);
        let (tag, text) = sealed.split_first_chunk()?;
        Some(SealedCookie { algorithm, key, associated_data, tag, text })
    }

    fn key_by_id(&self, id: [u8; 3]) -> Option<&SivKey> {
        if id == self.current.id {
            return Some(&self.current.key);
        }
        self.other_keys.iter().find(|other| other.id == id).map(|other| &other.key)
    }
}

impl fmt::Debug for CookieKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CookieKeys")
            .field("period", &self.period)
            .field("rotation_s", &self.rotation_s)
            .field("keep", &self.past_periods)
            .finish_non_exhaustive()
    }
}

/// Returns the number of the rotation period that contains `now`; 0 for times before 1970.
fn period_number(rotation_s: u64, now: Timestamp<Utc>) -> u64 {
    u64::try_from(now.to_timespec().0).unwrap_or(0) / rotation_s
}

#[cfg(test)]
mod tests;
