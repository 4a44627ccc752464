//! What can be known of a configuration before anything is opened for serving: its own rules, and
//! whether what it names is there. It opens no socket by which anything is served and no device,
//! and changes nothing, so that a server that runs does not notice.

use std::fs;

use horolog_http::Token;
use horolog_source::Fault;
use horolog_sys::netlink::{Netlink, NetlinkError};

use crate::hardware::{Hardware, HardwareStartError};
use crate::ptp::{OpenPtp, PtpStartError};
use crate::secrets::FromFiles;
use crate::{ConfigError, LeapFile, ServerConfig};

/// What is wrong with a configuration, or with what it names; its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The configuration is not right.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An interface that is not there.
    #[error("there is no interface '{0}'; `ip link` lists those that {1} may name")]
    NoInterface(String, &'static str),
    /// A source of time that is not there.
    #[error("the source {0} cannot be used: {1}")]
    Source(String, Fault),
    /// An interface that takes no timestamps.
    #[error(transparent)]
    Hardware(#[from] HardwareStartError),
    /// A port of PTP that cannot be.
    #[error(transparent)]
    Ptp(#[from] PtpStartError),
    /// A user that is not there.
    #[error("there is no user '{0}'; --user takes a name of /etc/passwd")]
    NoUser(String),
    /// Anything else that an option names and that is not right.
    #[error("{0}")]
    Other(String),
}

/// Finds the first thing that would keep the configuration from being served.
///
/// What it finds right may be gone when the server starts; starting looks again.
pub fn check(config: &ServerConfig) -> Result<(), CheckError> {
    config.check()?;
    let mut netlink = Netlink::open().map_err(|error| other(&error))?;
    for (names, option) in
        [(&config.interfaces, "--interface"), (&config.timestamps.hardware, "--timestamps")]
    {
        for name in names {
            // In a private host /sys shows the interfaces of whoever mounted it.
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
    for source in &config.source.sources {
        let failed = |fault| CheckError::Source(source.text.clone(), fault);
        source.is_there().map_err(failed)?;
    }
    if let Some(calibration) = &config.calibration {
        let failed = |fault| CheckError::Source(calibration.name(), fault);
        calibration.is_there().map_err(failed)?;
    }
    if let Some(name) = &config.operation.user
        && !user_exists(name)
    {
        return Err(CheckError::NoUser(name.clone()));
    }
    check_files(config)
}

fn other(error: &dyn std::fmt::Display) -> CheckError {
    CheckError::Other(error.to_string())
}

/// Reads every file that a start would read, as a start would.
fn check_files(config: &ServerConfig) -> Result<(), CheckError> {
    if let Some(path) = &config.leap_seconds.file {
        LeapFile::open(path).map_err(|error| other(&error))?;
    }
    if let Some(path) = config.operation.web.as_ref().and_then(|web| web.token_file.as_ref()) {
        Token::load(path).map_err(|error| other(&error))?;
    }
    FromFiles::read(&config.nts).map_err(|error| other(&error))?;
    if let (Some(certificate), Some(key)) = (&config.nts.certificate, &config.nts.key) {
        horolog_ke::check_certificate(certificate, key).map_err(|error| other(&error))?;
    }
    Ok(())
}

/// Whether the system's user database has this name. Where it is not a file, nobody can say before
/// the server starts.
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
