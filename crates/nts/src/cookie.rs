//! Cookies of the server (RFC 8915, section 6, leaves their format to the server) and the keys that
//! seal them. A key is derived from the master secret and the number of its period alone, so
//! servers that share the secret and the length of a period open each other's cookies without
//! communication. This module reads no clock; the caller renews the keys.
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
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::aead::TAG_LEN;
use crate::aead::siv::{BATCH, SivKey, is_equal, vectors};
use crate::{Algorithm, MasterSecret, SessionKeys};

/// The longest cookie of a server, in bytes.
pub const COOKIE_LEN_MAX: usize = cookie_len(Algorithm::AesSivCmac256);
/// Default duration for which a key seals cookies.
pub const ROTATION_DEFAULT: Duration = Duration::from_hours(24);
/// Default number of past periods whose cookies are still opened.
pub const KEEP_DEFAULT: usize = 7;
/// Greatest number of past periods whose cookies can be opened.
pub const KEEP_MAX: usize = 64;

/// Length of the nonce of a cookie, in bytes.
pub(crate) const COOKIE_NONCE_LEN: usize = 16;
const HEADER_LEN: usize = 4;
const TAG_AT: usize = HEADER_LEN + COOKIE_NONCE_LEN;
const TEXT_AT: usize = TAG_AT + TAG_LEN;
const LABEL: &[u8] = b"horolog nts cookie 1";

/// Length of a cookie for a session of `algorithm`, in bytes.
#[must_use]
pub const fn cookie_len(algorithm: Algorithm) -> usize {
    TEXT_AT + 2 * algorithm.key_len()
}

struct PeriodKey {
    id: [u8; 3],
    key: SivKey,
}

impl PeriodKey {
    fn derive(secret: &MasterSecret, rotation_s: u64, period: u64) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        let context = [LABEL, &rotation_s.to_be_bytes(), &period.to_be_bytes()].concat();
        let made = Hkdf::<Sha256>::new(None, secret.bytes()).expand(&context, &mut *bytes);
        debug_assert!(made.is_ok(), "HKDF-SHA256 gives up to 8,160 bytes");
        let [.., a, b, c] = period.to_be_bytes();
        Self { id: [a, b, c], key: SivKey::new(&*bytes) }
    }
}

/// The parts of a cookie, and the key indicated by its period.
struct SealedCookie<'a> {
    algorithm: Algorithm,
    key: &'a SivKey,
    open: &'a [u8],
    tag: &'a [u8; TAG_LEN],
    text: &'a [u8],
}

/// The keys that seal and open a server's cookies at one time. Sealing uses the present period's
/// key; opening also accepts those of some previous periods, and the one of the next period, which
/// a server whose clock is ahead may already use.
pub struct CookieKeys {
    secret: MasterSecret,
    rotation_s: u64,
    keep: usize,
    period: u64,
    current: PeriodKey,
    others: Box<[PeriodKey]>,
}

impl CookieKeys {
    /// The keys for the time `now`. A key seals for `rotation` (whole seconds; less than one counts
    /// as one) and opens for `keep` more periods (at most [`KEEP_MAX`]).
    #[must_use]
    pub fn new(
        secret: &MasterSecret,
        rotation: Duration,
        keep: usize,
        now: Timestamp<Utc>,
    ) -> Self {
        let rotation_s = rotation.as_secs().max(1);
        Self::for_period(secret, rotation_s, keep.min(KEEP_MAX), period_of(rotation_s, now))
    }

    fn for_period(secret: &MasterSecret, rotation_s: u64, keep: usize, period: u64) -> Self {
        let derive = |period| PeriodKey::derive(secret, rotation_s, period);
        let past = (1..=keep as u64).filter_map(|back| period.checked_sub(back));
        let others = past.chain(period.checked_add(1)).map(derive).collect();
        let current = derive(period);
        Self { secret: secret.clone(), rotation_s, keep, period, current, others }
    }

    /// Returns true if the period of `now` differs from that of these keys.
    #[must_use]
    pub fn is_due(&self, now: Timestamp<Utc>) -> bool {
        period_of(self.rotation_s, now) != self.period
    }

    /// The keys for the time `now`.
    #[must_use]
    pub fn renew(&self, now: Timestamp<Utc>) -> Self {
        let period = period_of(self.rotation_s, now);
        Self::for_period(&self.secret, self.rotation_s, self.keep, period)
    }

    /// The number of the period whose key seals.
    #[must_use]
    pub const fn period(&self) -> u64 {
        self.period
    }

    /// Writes a cookie with `keys` to the front of `out` and returns its length, which depends on
    /// the algorithm alone and is a multiple of 4; 0 if `out` is too short for it. The nonce is
    /// random and never used twice.
    pub fn seal(&self, keys: &SessionKeys, nonce: [u8; 16], out: &mut [u8]) -> usize {
        let len = cookie_len(keys.algorithm());
        let Some(cookie) = out.get_mut(..len) else { return 0 };
        self.write(keys, &nonce, cookie);
        self.seal_written(&mut [Some(cookie)]);
        len
    }

    /// Writes an unsealed cookie to `cookie`, which has exactly its length.
    pub(crate) fn write(
        &self,
        keys: &SessionKeys,
        nonce: &[u8; COOKIE_NONCE_LEN],
        cookie: &mut [u8],
    ) {
        let (open, sealed) = cookie.split_at_mut(TAG_AT);
        open[..3].copy_from_slice(&self.current.id);
        open[3] = keys.algorithm().number() as u8;
        open[HEADER_LEN..].copy_from_slice(nonce);
        let (c2s, s2c) = sealed[TAG_LEN..].split_at_mut(keys.algorithm().key_len());
        c2s.copy_from_slice(keys.c2s());
        s2c.copy_from_slice(keys.s2c());
    }

    /// Seals cookies written by [`Self::write`], up to [`BATCH`].
    pub(crate) fn seal_written(&self, cookies: &mut [Option<&mut [u8]>]) {
        let SivKey { mac, stream } = &self.current.key;
        let mut opens = [&[][..]; BATCH];
        for (open, cookie) in opens.iter_mut().zip(&*cookies) {
            if let Some(cookie) = cookie {
                *open = &cookie[..TAG_AT];
            }
        }
        let mut jobs = [None; BATCH];
        for ((job, cookie), open) in jobs.iter_mut().zip(&*cookies).zip(&opens) {
            if let Some(cookie) = cookie {
                let parts = core::slice::from_ref(open);
                *job = Some(mac.job(parts, &cookie[TEXT_AT..]));
            }
        }
        let mut tags = [Default::default(); BATCH];
        vectors(&jobs[..cookies.len()], &mut tags);
        for (cookie, tag) in cookies.iter_mut().zip(&tags) {
            if let Some(cookie) = cookie {
                let (front, text) = cookie.split_at_mut(TEXT_AT);
                front[TAG_AT..].copy_from_slice(tag);
                stream.apply(tag, text);
            }
        }
    }

    /// The keys in `cookie`, if one of these keys sealed it.
    #[must_use]
    pub fn open(&self, cookie: &[u8]) -> Option<SessionKeys> {
        let mut keys = [None];
        self.open_all(&[Some(cookie)], &mut keys);
        let [keys] = keys;
        keys
    }

    /// Stores the keys of each cookie that one of these keys sealed, up to [`BATCH`], at its index
    /// in `keys`.
    pub(crate) fn open_all(&self, cookies: &[Option<&[u8]>], keys: &mut [Option<SessionKeys>]) {
        let mut sealed = [const { None }; BATCH];
        let mut texts = [[0; COOKIE_LEN_MAX - TEXT_AT]; BATCH];
        for ((cookie, sealed), text) in cookies.iter().zip(&mut sealed).zip(&mut texts) {
            *sealed = cookie.and_then(|cookie| self.recognise(cookie));
            if let Some(sealed) = sealed {
                let text = &mut text[..sealed.text.len()];
                text.copy_from_slice(sealed.text);
                sealed.key.stream.apply(sealed.tag, text);
            }
        }
        let mut jobs = [None; BATCH];
        for ((job, sealed), text) in jobs.iter_mut().zip(&sealed).zip(&texts) {
            if let Some(sealed) = sealed {
                let parts = core::slice::from_ref(&sealed.open);
                *job = Some(sealed.key.mac.job(parts, &text[..sealed.text.len()]));
            }
        }
        let mut tags = [Default::default(); BATCH];
        vectors(&jobs[..cookies.len()], &mut tags);
        for (((keys, sealed), text), tag) in keys.iter_mut().zip(&sealed).zip(&texts).zip(&tags) {
            if let Some(sealed) = sealed
                && is_equal(tag, sealed.tag)
            {
                *keys = SessionKeys::of_both(sealed.algorithm, &text[..sealed.text.len()]);
            }
        }
        // Wiped entirely: a text that failed to open may still hold keys.
        texts.as_flattened_mut().fill(0);
        zeroize::optimization_barrier(&texts);
    }

    /// The parts of a cookie with the form and period of this server's.
    fn recognise<'a>(&'a self, cookie: &'a [u8]) -> Option<SealedCookie<'a>> {
        let &[a, b, c, number, ..] = cookie else { return None };
        let algorithm = Algorithm::from_number(u16::from(number))?;
        if cookie.len() != cookie_len(algorithm) {
            return None;
        }
        let key = self.key([a, b, c])?;
        let (open, sealed) = cookie.split_at(TAG_AT);
        let (tag, text) = sealed.split_first_chunk()?;
        Some(SealedCookie { algorithm, key, open, tag, text })
    }

    fn key(&self, id: [u8; 3]) -> Option<&SivKey> {
        if id == self.current.id {
            return Some(&self.current.key);
        }
        self.others.iter().find(|other| other.id == id).map(|other| &other.key)
    }
}

impl fmt::Debug for CookieKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CookieKeys")
            .field("period", &self.period)
            .field("rotation_s", &self.rotation_s)
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}

/// The number of the period that contains `now`. Times before 1970 are in the first one.
fn period_of(rotation_s: u64, now: Timestamp<Utc>) -> u64 {
    u64::try_from(now.to_timespec().0).unwrap_or(0) / rotation_s
}

#[cfg(test)]
mod tests;
