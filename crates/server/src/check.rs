//! What can be known of a configuration before anything is opened for serving: its own rules, and
//! whether what it names is there. It opens no socket and changes nothing.

use std::fs;
use std::path::Path;

use crate::secrets::FromFiles;
use crate::{ConfigError, LeapFile, ServerConfig};

/// What is wrong with a configuration, or with what it names; its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The configuration is not right.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An interface that is not there.
    #[error("there is no interface '{0}'; `ip link` lists those that --interface may name")]
    NoInterface(String),
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
    for name in &config.interfaces {
        // A name with a slash is none of an interface, and must not lead out of the directory.
        if name.contains('/') || !Path::new("/sys/class/net").join(name).exists() {
            return Err(CheckError::NoInterface(name.clone()));
        }
    }
    if let Some(name) = &config.operation.user
        && !user_exists(name)
    {
        return Err(CheckError::NoUser(name.clone()));
    }
    check_files(config)
}

/// Reads every file that a start would read, as a start would.
fn check_files(config: &ServerConfig) -> Result<(), CheckError> {
    let other = |error: &dyn std::fmt::Display| CheckError::Other(error.to_string());
    if let Some(path) = &config.leap_seconds.file {
        LeapFile::open(path).map_err(|error| other(&error))?;
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
            assert!(matches!(error, CheckError::NoInterface(_)), "{error}");
        }
        config.interfaces.clear();
        let user = Some("nobody-of-this-name".to_owned());
        config.operation = OperationConfig { user, ..OperationConfig::default() };
        assert!(matches!(check(&config), Err(CheckError::NoUser(_))));
        config.operation.user = Some("root".into());
        check(&config).unwrap();
        config.stratum = 0;
        assert!(matches!(check(&config), Err(CheckError::Config(_))));
    }
}
