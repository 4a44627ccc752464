//! The files that a server's secrets stand in, and the cookie keys that follow the time. No message
//! and no log repeats a secret.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use horolog_nts::mac::{KeyFileError, KeyTable};
use horolog_nts::{CookieKeys, KEEP_DEFAULT, MasterSecret, SecretError};
use horolog_sys::clock::Realtime;
use horolog_sys::private_file::{self, PrivateFileError};
use horolog_time::{Clock, Timestamp};
use horolog_wire::ntp::Leap;
use zeroize::Zeroizing;

use crate::NtsConfig;
use crate::authenticate::Secrets;
use crate::page::{PageSink, Pages};

/// The longest file that is read; no key file is nearly as long.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Why there are no secrets; its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    /// A file that cannot be read, or that everybody can.
    #[error("{option} {} {source}", path.display())]
    File {
        /// The option that names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: PrivateFileError,
    },
    /// A line of the file of symmetric keys.
    #[error("--keys {}, {fault}", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// Which line, and what is wrong with it.
        fault: KeyFileError,
    },
    /// A file of symmetric keys without any.
    #[error("--keys {} holds no key; write one a line: IDENTIFIER TYPE KEY", path.display())]
    NoKeys {
        /// The file.
        path: PathBuf,
    },
    /// The file of the master secret.
    #[error("--nts-master-secret {}: {fault}", path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: SecretError,
    },
    /// No random numbers for a secret of this server's own.
    #[error(transparent)]
    Random(SecretError),
}

/// What the files hold that the configuration names.
#[derive(Debug)]
pub(crate) struct FromFiles {
    keys: Option<KeyTable>,
    cookies: Option<CookieKeys>,
}

impl FromFiles {
    pub(crate) fn read(config: &NtsConfig) -> Result<Self, SecretsError> {
        let keys = config.keys.as_deref().map(load_keys).transpose()?;
        let secret = config.master_secret.as_deref().map(load_secret).transpose()?;
        Ok(Self { keys, cookies: secret.map(|secret| cookie_keys(&secret, config)) })
    }

    /// Puts it in the place of what the files held before, where that is shared with threads.
    pub(crate) fn replace(self, secrets: &Secrets) {
        if let (Some(shared), Some(keys)) = (&secrets.keys, self.keys) {
            shared.store(Arc::new(keys));
        }
        if let (Some(shared), Some(cookies)) = (&secrets.cookies, self.cookies) {
            shared.store(Arc::new(cookies));
        }
    }
}

/// Reads the secrets that the configuration names, and makes up the one that it does not.
pub(crate) fn load(config: &NtsConfig) -> Result<Secrets, SecretsError> {
    let FromFiles { keys, mut cookies } = FromFiles::read(config)?;
    if cookies.is_none() && config.is_on() {
        let secret = MasterSecret::generate().map_err(SecretsError::Random)?;
        cookies = Some(cookie_keys(&secret, config));
    }
    Ok(Secrets { keys: keys.map(shared), cookies: cookies.map(shared) })
}

fn shared<T>(value: T) -> Arc<ArcSwap<T>> {
    Arc::new(ArcSwap::from_pointee(value))
}

fn cookie_keys(secret: &MasterSecret, config: &NtsConfig) -> CookieKeys {
    CookieKeys::new(secret, config.rotation, KEEP_DEFAULT, Realtime.now())
}

fn load_keys(path: &Path) -> Result<KeyTable, SecretsError> {
    let text = read("--keys", path)?;
    let path = path.to_owned();
    match KeyTable::parse(&text) {
        Ok(keys) if keys.is_empty() => Err(SecretsError::NoKeys { path }),
        Ok(keys) => Ok(keys),
        Err(fault) => Err(SecretsError::Keys { path, fault }),
    }
}

fn load_secret(path: &Path) -> Result<MasterSecret, SecretsError> {
    let text = read("--nts-master-secret", path)?;
    MasterSecret::parse(&text)
        .map_err(|fault| SecretsError::Secret { path: path.to_owned(), fault })
}

fn read(option: &'static str, path: &Path) -> Result<Zeroizing<String>, SecretsError> {
    let failed = |source| SecretsError::File { option, path: path.to_owned(), source };
    private_file::read(path, FILE_LEN_MAX).map(Zeroizing::new).map_err(failed)
}

/// Renews the cookie keys when their period is over, by the time that each clock page serves, less
/// what it is wrong by on purpose. While a page says that nobody knows the time the keys stay: by a
/// clock that has jumped all cookies would be lost.
pub(crate) struct CookieRenewal {
    pub(crate) keys: Arc<ArcSwap<CookieKeys>>,
    /// Whether the time served is wrong on purpose; then the system clock's counts.
    pub(crate) is_test: bool,
}

impl PageSink for CookieRenewal {
    fn publish(&mut self, pages: &Pages) -> io::Result<()> {
        let page = &pages.stepped;
        if page.variables.leap == Leap::Unsynchronised {
            return Ok(());
        }
        let anchor = page.timebase.anchor.as_ns();
        let system = anchor.saturating_add(page.realtime_minus_monotonic.as_ns());
        let now = match Timestamp::from_ns(system) {
            system if self.is_test => system,
            system => page.timebase.ntp_at_anchor.to_utc(system),
        };
        let present = self.keys.load();
        if present.is_due(now) {
            // A reload may have put keys of another secret there meanwhile; they stay.
            self.keys.compare_and_swap(&present, Arc::new(present.renew(now)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use horolog_time::{NtpTimestamp, Span};

    use super::*;
    use crate::page::tests::{both, page};

    const DAY: i64 = 86_400;

    /// A page by which it is this day, and the number of the period of the keys after it.
    fn period_after(renewal: &mut CookieRenewal, day: i64, leap: Leap) -> u64 {
        let utc = Timestamp::from_timespec(day * DAY, 0);
        let mut page = page();
        page.timebase.ntp_at_anchor = NtpTimestamp::from_utc(utc);
        page.variables.leap = leap;
        renewal.publish(&both(page)).unwrap();
        renewal.keys.load().period()
    }

    fn renewal(is_test: bool) -> CookieRenewal {
        let secret = MasterSecret::generate().unwrap();
        let start = Timestamp::from_timespec(20_000 * DAY, 0);
        let rotation = Duration::from_secs(DAY as u64);
        let keys = CookieKeys::new(&secret, rotation, KEEP_DEFAULT, start);
        CookieRenewal { keys: shared(keys), is_test }
    }

    #[test]
    fn keys_follow_the_time_served_and_stay_while_nobody_knows_it() {
        let mut renewal = renewal(false);
        assert_eq!(period_after(&mut renewal, 20_001, Leap::None), 20_001);
        for day in [0, 20_002, 30_000] {
            assert_eq!(period_after(&mut renewal, day, Leap::Unsynchronised), 20_001);
        }
        assert_eq!(period_after(&mut renewal, 20_002, Leap::Insert), 20_002);
    }

    #[test]
    fn a_time_that_is_wrong_on_purpose_does_not_move_the_keys() {
        let mut renewal = renewal(true);
        let system = page().realtime_minus_monotonic + Span::from_ns(100_000_000_000);
        let day = (system.as_ns() / 1_000_000_000 / DAY) as u64;
        assert_eq!(period_after(&mut renewal, 30_000, Leap::None), day);
    }
}
