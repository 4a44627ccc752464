//! Checks of a configuration before the server starts: its own rules, and the existence of the
//! files, interfaces and devices that it names. They open no serving socket and no device, so that
//! a running server is not affected.

use std::fs;

use horolog_http::BearerToken;
use horolog_ptp::{OpenPtpPorts, PtpStartError};
use horolog_source::{CalibrationConfig, SourceError, SourceSpec};
use horolog_sys::netlink::{Netlink, NetlinkError};

use crate::clock::leap_file::LeapFile;
use crate::config::{ConfigError, ServerConfig};
use crate::nts::secrets::LoadedSecrets;
use crate::sockets::hardware::{HardwareTimestamping, HardwareTimestampingError};

/// Error in a configuration or in a resource that it names; its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum ConfigCheckError {
    /// Invalid configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Missing interface.
    #[error("interface '{0}' not found; `ip link` lists those that {1} may name")]
    NoInterface(String, &'static str),
    /// Time source that is missing or unusable.
    #[error("the source {0} is unusable: {1}")]
    Source(String, SourceError),
    /// Interface without hardware timestamps.
    #[error(transparent)]
    Hardware(#[from] HardwareTimestampingError),
    /// PTP port that cannot be opened as configured.
    #[error(transparent)]
    Ptp(#[from] PtpStartError),
    /// Unknown user.
    #[error("user '{0}' not found; --user takes a name of /etc/passwd")]
    NoUser(String),
    /// Any other unusable file or resource named by an option.
    #[error("{0}")]
    Other(String),
}

/// Checks a configuration and the resources that it names. Returns the first error that would
/// prevent the start; if there is none, a notice for the user, if any.
///
/// The server checks again at start, because resources may have disappeared in between.
pub fn check(config: &ServerConfig) -> Result<Option<String>, ConfigCheckError> {
    config.check()?;
    for (names, option) in
        [(&config.interfaces, "--interface"), (&config.timestamps.hardware, "--timestamps")]
    {
        for name in names {
            // In a lab host /sys shows the interfaces of the namespace that mounted it.
            let mut netlink = Netlink::open().map_err(|error| other_error(&error))?;
            match netlink.link_by_name(name) {
                Err(NetlinkError::NoSuchInterface(_)) => {
                    return Err(ConfigCheckError::NoInterface(name.clone(), option));
                }
                found => drop(found.map_err(|error| other_error(&error))?),
            }
        }
    }
    HardwareTimestamping::check(config)?;
    OpenPtpPorts::check(&config.ptp)?;
    check_sources(config)?;
    if let Some(name) = &config.operation.user
        && !user_exists(name)
    {
        return Err(ConfigCheckError::NoUser(name.clone()));
    }
    check_files(config)
}

/// Fails with the first error if time sources or a receiver are configured and none of them exists.
/// If one exists, the others may appear later.
fn check_sources(config: &ServerConfig) -> Result<(), ConfigCheckError> {
    let check_source = |source: &SourceSpec| {
        source.check_present().map_err(|fault| ConfigCheckError::Source(source.text.clone(), fault))
    };
    let check_receiver = |calibration: &CalibrationConfig| {
        calibration
            .check_present()
            .map_err(|fault| ConfigCheckError::Source(calibration.name(), fault))
    };
    let sources = config.source.sources.iter().map(check_source);
    let all: Vec<_> = sources.chain(config.calibration.iter().map(check_receiver)).collect();
    if all.iter().any(Result::is_ok) {
        return Ok(());
    }
    all.into_iter().collect()
}

fn other_error(error: &dyn std::fmt::Display) -> ConfigCheckError {
    ConfigCheckError::Other(error.to_string())
}

/// Reads the files that prevent the start if they are invalid, in the same way as the start: leap
/// seconds, token of the live page, secrets, certificate and its key. Returns the notice about
/// ignored lines of keys, if any.
fn check_files(config: &ServerConfig) -> Result<Option<String>, ConfigCheckError> {
    if let Some(path) = &config.leap_seconds.file {
        LeapFile::open(path).map_err(|error| other_error(&error))?;
    }
    if let Some(path) = config.operation.web.as_ref().and_then(|web| web.token_file.as_ref()) {
        BearerToken::load(path).map_err(|error| other_error(&error))?;
    }
    let secrets = LoadedSecrets::read(&config.nts).map_err(|error| other_error(&error))?;
    if let (Some(certificate), Some(key)) = (&config.nts.certificate, &config.nts.key) {
        horolog_ke::check_certificate(certificate, key).map_err(|error| other_error(&error))?;
    }
    Ok(secrets.notice)
}

/// Returns true if `/etc/passwd` contains this name, or cannot be read: other user databases cannot
/// be checked before the start.
fn user_exists(name: &str) -> bool {
    fs::read_to_string("/etc/passwd")
        .map_or(true, |text| text.lines().any(|line| line.split(':').next() == Some(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MetricsAndPrivilegesConfig;

    #[test]
    fn what_is_named_must_be_there() {
        let mut config = ServerConfig::default();
        check(&config).unwrap();
        config.interfaces = vec!["lo".into()];
        check(&config).unwrap();
        for name in ["nosuch0", "../net/lo"] {
            config.interfaces = vec![name.into()];
            let error = check(&config).unwrap_err();
            assert!(matches!(error, ConfigCheckError::NoInterface(..)), "{error}");
        }
        config.interfaces.clear();
        config.timestamps.hardware = vec!["nosuch0".into()];
        assert!(check(&config).unwrap_err().to_string().contains("--timestamps"));
        config.timestamps.hardware = vec!["lo".into()];
        let error = check(&config).unwrap_err();
        assert!(matches!(error, ConfigCheckError::Hardware(_)), "{error}");
        config.timestamps.hardware.clear();
        for name in ["nosuch0", "lo"] {
            config.ptp.interfaces = vec![name.into()];
            let error = check(&config).unwrap_err();
            assert!(matches!(error, ConfigCheckError::Ptp(_)), "{error}");
        }
        config.ptp.interfaces.clear();
        for gone in ["phc:/dev/nosuch", "gpsd:nohost.invalid:2947", "sock:/nosuch/x", "sock:/etc"] {
            config.source.sources = vec![gone.parse().unwrap()];
            let error = check(&config).unwrap_err();
            assert!(matches!(error, ConfigCheckError::Source(..)), "{gone}: {error}");
            config.source.sources.push("system:kernel".parse().unwrap());
            check(&config).unwrap_or_else(|error| panic!("{gone} beside another: {error}"));
        }
        config.source.sources.clear();
        let user = Some("nobody-of-this-name".to_owned());
        config.operation =
            MetricsAndPrivilegesConfig { user, ..MetricsAndPrivilegesConfig::default() };
        assert!(matches!(check(&config), Err(ConfigCheckError::NoUser(_))));
        config.operation.user = Some("root".into());
        check(&config).unwrap();
        config.stratum = 0;
        assert!(matches!(check(&config), Err(ConfigCheckError::Config(_))));
    }
}
