//! Files with the secrets of a server, and rotation of the cookie keys. Secrets appear in no
//! message and no log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use horolog_nts::mac::{KeyFile, KeyTable, UnusedKeyFileLines};
use horolog_nts::{CookieKeys, CookieMasterSecret, CookieMasterSecretError, PAST_PERIODS_DEFAULT};
use horolog_source::{ClockPageSink, ClockPages};
use horolog_sys::clock::ClockRealtime;
use horolog_sys::private_file::{self, PrivateFileError};
use horolog_time::{Clock, Timestamp};
use horolog_wire::ntp::LeapIndicator;
use zeroize::Zeroizing;

use super::authenticate::Secrets;
use crate::config::NtsConfig;

/// Maximum length of a file, in bytes.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Reason for which secrets are unavailable; its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    /// File that cannot be read, or that other users may read.
    #[error("{option} {} {source}", path.display())]
    File {
        /// Option that names the file.
        option: &'static str,
        /// File path.
        path: PathBuf,
        /// Cause of the failure.
        source: PrivateFileError,
    },
    /// File of symmetric keys in which no line is usable.
    #[error("--keys {} contains no usable key: {unused}", path.display())]
    Keys {
        /// File path.
        path: PathBuf,
        /// Unused lines, with the reasons.
        unused: UnusedKeyFileLines,
    },
    /// File of symmetric keys without any line.
    #[error("--keys {} contains no key; write one per line: IDENTIFIER TYPE KEY", path.display())]
    NoKeys {
        /// File path.
        path: PathBuf,
    },
    /// Invalid master secret in its file.
    #[error("--nts-master-secret {}: {fault}", path.display())]
    Secret {
        /// File path.
        path: PathBuf,
        /// Error in the file.
        fault: CookieMasterSecretError,
    },
    /// Failure to generate the server's own secret.
    #[error(transparent)]
    Random(CookieMasterSecretError),
}

/// Secrets loaded from the configured files.
#[derive(Debug)]
pub(crate) struct LoadedSecrets {
    keys: Option<KeyTable>,
    cookies: Option<CookieKeys>,
    /// Notice to the user about ignored lines.
    pub(crate) notice: Option<String>,
}

impl LoadedSecrets {
    pub(crate) fn read(config: &NtsConfig) -> Result<Self, SecretsError> {
        let (keys, notice) = match config.keys.as_deref().map(load_keys).transpose()? {
            Some((keys, notice)) => (Some(keys), notice),
            None => (None, None),
        };
        let secret = config.master_secret.as_deref().map(load_secret).transpose()?;
        Ok(Self { keys, cookies: secret.map(|secret| cookie_keys(&secret, config)), notice })
    }

    /// Replaces the secrets that threads share by those that were loaded; secrets of kinds that
    /// either side lacks stay.
    pub(crate) fn replace(self, secrets: &Secrets) {
        if let (Some(shared), Some(keys)) = (&secrets.keys, self.keys) {
            shared.store(Arc::new(keys));
        }
        if let (Some(shared), Some(cookies)) = (&secrets.cookies, self.cookies) {
            shared.store(Arc::new(cookies));
        }
    }
}

/// Loads the configured secrets, and generates one for cookies if NTS is on and none is configured.
/// Also returns the notice for the user about ignored lines, if any.
pub(crate) fn load(config: &NtsConfig) -> Result<(Secrets, Option<String>), SecretsError> {
    let LoadedSecrets { keys, mut cookies, notice } = LoadedSecrets::read(config)?;
    if cookies.is_none() && config.is_on() {
        let secret = CookieMasterSecret::generate().map_err(SecretsError::Random)?;
        cookies = Some(cookie_keys(&secret, config));
    }
    Ok((Secrets { keys: keys.map(to_shared), cookies: cookies.map(to_shared) }, notice))
}

fn to_shared<T>(value: T) -> Arc<ArcSwap<T>> {
    Arc::new(ArcSwap::from_pointee(value))
}

fn cookie_keys(secret: &CookieMasterSecret, config: &NtsConfig) -> CookieKeys {
    CookieKeys::new(secret, config.rotation, PAST_PERIODS_DEFAULT, ClockRealtime.now())
}

/// Returns the keys of a file, and a notice about ignored lines.
fn load_keys(path: &Path) -> Result<(KeyTable, Option<String>), SecretsError> {
    let text = private_file::read_bytes(path, FILE_LEN_MAX).map(Zeroizing::new);
    let KeyFile { keys, unused } = KeyFile::parse(&text.map_err(file_error("--keys", path))?);
    let owned = path.to_owned();
    match (keys.is_empty(), unused.is_empty()) {
        (true, true) => Err(SecretsError::NoKeys { path: owned }),
        (true, false) => Err(SecretsError::Keys { path: owned, unused }),
        (false, true) => Ok((keys, None)),
        (false, false) => {
            let notice = format!("--keys {}: ignored {unused}", path.display());
            Ok((keys, Some(notice)))
        }
    }
}

fn load_secret(path: &Path) -> Result<CookieMasterSecret, SecretsError> {
    let option = "--nts-master-secret";
    let text = private_file::read(path, FILE_LEN_MAX).map(Zeroizing::new);
    CookieMasterSecret::parse(&text.map_err(file_error(option, path))?)
        .map_err(|fault| SecretsError::Secret { path: path.to_owned(), fault })
}

fn file_error(
    option: &'static str,
    path: &Path,
) -> impl FnOnce(PrivateFileError) -> SecretsError + use<> {
    let path = path.to_owned();
    move |source| SecretsError::File { option, path, source }
}

/// Sink of clock pages that rotates the cookie keys at the end of their period. The time is that of
/// each clock page, without a test offset. While a page is unsynchronised the keys stay, because a
/// clock that has jumped would invalidate all cookies.
pub(crate) struct CookieKeyRotator {
    pub(crate) keys: Arc<ArcSwap<CookieKeys>>,
    /// True if the served time is deliberately wrong; the system clock is then used instead.
    pub(crate) is_test: bool,
}

impl ClockPageSink for CookieKeyRotator {
    fn publish(&mut self, pages: &ClockPages) -> io::Result<()> {
        let page = &pages.stepped;
        if page.variables.leap == LeapIndicator::Unsynchronised {
            return Ok(());
        }
        let anchor = page.timebase.anchor.as_ns();
        let system = anchor.saturating_add(page.realtime_minus_monotonic.as_ns());
        let now = match Timestamp::from_ns(system) {
            system if self.is_test => system,
            system => page.timebase.ntp_at_anchor.to_utc(system),
        };
        let present = self.keys.load();
        if present.is_rotation_due(now) {
            // A reload may have replaced the keys meanwhile; the keys of the reload stay.
            self.keys.compare_and_swap(&present, Arc::new(present.rotated(now)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use horolog_source::ClockPage;
    use horolog_time::{NtpTimestamp, Span};

    use super::*;

    const DAY: i64 = 86_400;

    /// A page by which it is this day, and the number of the period of the keys after it.
    fn period_after(renewal: &mut CookieKeyRotator, day: i64, leap: LeapIndicator) -> u64 {
        let utc = Timestamp::from_timespec(day * DAY, 0);
        let mut page = ClockPage::SAMPLE;
        page.timebase.ntp_at_anchor = NtpTimestamp::from_utc(utc);
        page.variables.leap = leap;
        renewal.publish(&ClockPages { stepped: page, smeared: page }).unwrap();
        renewal.keys.load().period()
    }

    fn renewal(is_test: bool) -> CookieKeyRotator {
        let secret = CookieMasterSecret::generate().unwrap();
        let start = Timestamp::from_timespec(20_000 * DAY, 0);
        let rotation = Duration::from_secs(DAY as u64);
        let keys = CookieKeys::new(&secret, rotation, PAST_PERIODS_DEFAULT, start);
        CookieKeyRotator { keys: to_shared(keys), is_test }
    }

    #[test]
    fn keys_follow_the_served_time_and_stay_while_it_is_unsynchronised() {
        let mut renewal = renewal(false);
        assert_eq!(period_after(&mut renewal, 20_001, LeapIndicator::None), 20_001);
        for day in [0, 20_002, 30_000] {
            assert_eq!(period_after(&mut renewal, day, LeapIndicator::Unsynchronised), 20_001);
        }
        assert_eq!(period_after(&mut renewal, 20_002, LeapIndicator::Insert), 20_002);
    }

    #[test]
    fn a_time_that_is_wrong_on_purpose_does_not_move_the_keys() {
        let mut renewal = renewal(true);
        let system = ClockPage::SAMPLE.realtime_minus_monotonic + Span::from_ns(100_000_000_000);
        let day = (system.as_ns() / 1_000_000_000 / DAY) as u64;
        assert_eq!(period_after(&mut renewal, 30_000, LeapIndicator::None), day);
    }
}
