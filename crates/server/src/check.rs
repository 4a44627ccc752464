//! Checks of a configuration before anything is opened for serving: its own rules, and the
//! existence of the files and devices that it names. They open no serving socket and no device and
//! change nothing, so a running server is not affected.

use std::fs;

use horolog_http::Token;
use horolog_source::SourceError;
use horolog_sys::netlink::{Netlink, NetlinkError};

use crate::hardware::{Hardware, HardwareStartError};
use crate::ptp::{OpenPtp, PtpStartError};
use crate::secrets::FromFiles;
use crate::{CalibrationConfig, ConfigError, LeapFile, ServerConfig, SourceSpec};

/// Error in a configuration or in a resource that it names; its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Invalid configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Missing interface.
    #[error("interface '{0}' not found; `ip link` lists those that {1} may name")]
    NoInterface(String, &'static str),
    /// Missing time source.
    #[error("the source {0} is unusable: {1}")]
    Source(String, SourceError),
    /// Interface without hardware timestamps.
    #[error(transparent)]
    Hardware(#[from] HardwareStartError),
    /// Impossible PTP port.
    #[error(transparent)]
    Ptp(#[from] PtpStartError),
    /// Unknown user.
    #[error("user '{0}' not found; --user takes a name of /etc/passwd")]
    NoUser(String),
    /// Any other invalid resource named by an option.
    #[error("{0}")]
    Other(String),
}

/// Returns the first error that would prevent the configuration from being served; if there is
/// none, the advice for the user, if any.
///
/// A resource that passes may have disappeared when the server starts, so the start checks again.
pub fn check(config: &ServerConfig) -> Result<Option<String>, CheckError> {
    config.check()?;
    for (names, option) in
        [(&config.interfaces, "--interface"), (&config.timestamps.hardware, "--timestamps")]
    {
        for name in names {
            // In a lab host /sys shows the interfaces of the namespace that mounted it.
            let mut netlink = Netlink::open().map_err(|error| other(&error))?;
            match netlink.link_by_name(name) {
                Err(NetlinkError::NoSuchInterface(_)) => {
                    return Err(CheckError::NoInterface(name.clone(), option));
                }
                found => drop(found.map_err(|error| other(&error))?),
            }
        }
    }
    Hardware::check(config)?;
    OpenPtp::check(config)?;
    check_sources(config)?;
    if let Some(name) = &config.operation.user
        && !user_exists(name)
    {
        return Err(CheckError::NoUser(name.clone()));
    }
    check_files(config)
}

/// Rejects time sources if none of them exists; next to an existing one, another may appear later.
fn check_sources(config: &ServerConfig) -> Result<(), CheckError> {
    let of_source = |source: &SourceSpec| {
        source.check_present().map_err(|fault| CheckError::Source(source.text.clone(), fault))
    };
    let of_receiver = |calibration: &CalibrationConfig| {
        calibration.check_present().map_err(|fault| CheckError::Source(calibration.name(), fault))
    };
    let sources = config.source.sources.iter().map(of_source);
    let all: Vec<_> = sources.chain(config.calibration.iter().map(of_receiver)).collect();
    if all.iter().any(Result::is_ok) {
        return Ok(());
    }
    all.into_iter().collect()
}

fn other(error: &dyn std::fmt::Display) -> CheckError {
    CheckError::Other(error.to_string())
}

/// Reads every file that a start would read, as a start would.
fn check_files(config: &ServerConfig) -> Result<Option<String>, CheckError> {
    if let Some(path) = &config.leap_seconds.file {
        LeapFile::open(path).map_err(|error| other(&error))?;
    }
    if let Some(path) = config.operation.web.as_ref().and_then(|web| web.token_file.as_ref()) {
        Token::load(path).map_err(|error| other(&error))?;
    }
    let secrets = FromFiles::read(&config.nts).map_err(|error| other(&error))?;
    if let (Some(certificate), Some(key)) = (&config.nts.certificate, &config.nts.key) {
        horolog_ke::check_certificate(certificate, key).map_err(|error| other(&error))?;
    }
    Ok(secrets.notice)
}

/// Returns true if the system's user database contains this name. A database other than a file
/// cannot be checked before the server starts.
fn user_exists(name: &str) -> bool {
    fs::read_to_string("/etc/passwd")
        .map_or(true, |text| text.lines().any(|line| line.split(':').next() == Some(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OperationConfig;

    #[test]
    fn what_is_named_must_be_there() {
        let mut config = ServerConfig::default();
        check(&config).unwrap();
        config.interfaces = vec!["lo".into()];
        check(&config).unwrap();
        for name in ["nosuch0", "../net/lo"] {
            config.interfaces = vec![name.into()];
            let error = check(&config).unwrap_err();
            assert!(matches!(error, CheckError::NoInterface(..)), "{error}");
        }
        config.interfaces.clear();
        config.timestamps.hardware = vec!["nosuch0".into()];
        assert!(check(&config).unwrap_err().to_string().contains("--timestamps"));
        config.timestamps.hardware = vec!["lo".into()];
        let error = check(&config).unwrap_err();
        assert!(matches!(error, CheckError::Hardware(_)), "{error}");
        config.timestamps.hardware.clear();
        for name in ["nosuch0", "lo"] {
            config.ptp.interfaces = vec![name.into()];
            let error = check(&config).unwrap_err();
            assert!(matches!(error, CheckError::Ptp(_)), "{error}");
        }
        config.ptp.interfaces.clear();
        for gone in ["phc:/dev/nosuch", "gpsd:nohost.invalid:2947", "sock:/nosuch/x", "sock:/etc"] {
            config.source.sources = vec![gone.parse().unwrap()];
            let error = check(&config).unwrap_err();
            assert!(matches!(error, CheckError::Source(..)), "{gone}: {error}");
            config.source.sources.push("system:kernel".parse().unwrap());
            check(&config).unwrap_or_else(|error| panic!("{gone} beside another: {error}"));
        }
        config.source.sources.clear();
        let user = Some("nobody-of-this-name".to_owned());
        config.operation = OperationConfig { user, ..OperationConfig::default() };
        assert!(matches!(check(&config), Err(CheckError::NoUser(_))));
        config.operation.user = Some("root".into());
        check(&config).unwrap();
        config.stratum = 0;
        assert!(matches!(check(&config), Err(CheckError::Config(_))));
    }
}
