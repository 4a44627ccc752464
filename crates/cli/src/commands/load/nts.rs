//! Flags of `horolog load ntp` and `horolog load mix` for authenticated requests.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use horolog_load::nts::{
    AeadAlgorithm, KE_PORT, NtsOptions, SESSIONS_DEFAULT, SESSIONS_MAX, SessionCount, TrustAnchors,
};
use horolog_load::request_kind::NtsSessionSource;
use horolog_load::target::TargetName;

use crate::failure::CommandFailure;
use crate::secret::SecretText;

/// NTS authentication of the requests.
#[derive(Args, Debug, Default)]
pub(crate) struct RequestNtsArgs {
    /// Authenticate requests by NTS and verify the replies; sessions are established before the
    /// first request. Not with the xdp engine.
    ///
    /// In 'load ntp' it excludes interleaved mode, --key, --extension and other NTP versions than
    /// 4.
    #[arg(long, requires = "ca")]
    nts: bool,
    /// NTS-KE server: HOST or HOST:PORT [default: the target, port 4460].
    #[arg(long, value_name = "HOST", requires = "nts", value_parser = parse_nts_ke_server)]
    nts_ke: Option<TargetName>,
    /// PEM file of the certificates to trust in NTS-KE; required with --nts.
    #[arg(long, value_name = "FILE", requires = "nts")]
    ca: Option<PathBuf>,
    /// Name that the certificate must be valid for [default: the NTS-KE server as given].
    #[arg(long, value_name = "NAME", requires = "nts")]
    nts_name: Option<String>,
    /// Number of NTS sessions, shared by all clients, so that each cookie is sent many times; or
    /// 'each': a session for each client (-c, then by default 1000), with single-use cookies, which
    /// replies replenish [default: 16].
    #[arg(long, value_name = "N|each", requires = "nts", value_parser = parse_session_count)]
    nts_sessions: Option<SessionCount>,
    /// Percentage of the requests (in 'load mix', of those of the kind ntp-nts) that are
    /// authenticated; the others are plain NTP.
    #[arg(long, value_name = "PERCENT", requires = "nts", default_value_t = 100,
          value_parser = clap::value_parser!(u8).range(0..=100))]
    nts_share: u8,
    /// AEAD algorithm to negotiate [default: AES-SIV-CMAC-256, or one that the server supports].
    #[arg(long, value_enum, value_name = "NAME", requires = "nts")]
    nts_algorithm: Option<AeadAlgorithmArg>,
    /// Authenticate requests by this AEAD_AES_SIV_CMAC_256 session instead of --nts: the client's
    /// key (C2S) and a cookie, and the server's key (S2C) to verify replies, in hexadecimal digits.
    ///
    /// Without S2C replies are not authenticated: only their header, extension fields, unique
    /// identifier and length are checked.
    #[arg(long, value_name = "C2S,COOKIE[,S2C]", value_parser = SecretText::read,
          conflicts_with = "nts")]
    nts_cookie: Option<SecretText>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum AeadAlgorithmArg {
    #[value(name = "aes-siv-cmac-256")]
    AesSivCmac256,
    #[value(name = "aes-128-gcm-siv")]
    Aes128GcmSiv,
}

pub(crate) fn parse_nts_ke_server(text: &str) -> Result<TargetName, String> {
    TargetName::parse(text, KE_PORT).map_err(|error| error.to_string())
}

fn parse_session_count(text: &str) -> Result<SessionCount, String> {
    match text.parse() {
        _ if text == "each" => Ok(SessionCount::PerClient),
        Ok(count) if (1..=SESSIONS_MAX).contains(&count) => Ok(SessionCount::Shared(count)),
        _ => Err(format!("expected a number of sessions from 1 to {SESSIONS_MAX}, or 'each'")),
    }
}

impl RequestNtsArgs {
    /// Returns the NTS session of --nts-cookie; `None` without that flag.
    pub(crate) fn imported_session(&self) -> Result<Option<NtsSessionSource>, CommandFailure> {
        let imported =
            self.nts_cookie.as_ref().map(|text| text.parse_session("--nts-cookie")).transpose()?;
        Ok(imported.as_ref().map(NtsSessionSource::imported))
    }

    /// Returns a command line in which the secrets of these flags are masked.
    pub(crate) fn redact_command(&self, command: Vec<String>) -> Vec<String> {
        match &self.nts_cookie {
            None => command,
            Some(secret) => secret.redact_command(command),
        }
    }

    /// Returns the source of the sessions; `None` if requests are not authenticated. `imported` is
    /// the session of [`RequestNtsArgs::imported_session`], which excludes --nts.
    pub(crate) fn resolve(
        self,
        target: &TargetName,
        imported: Option<NtsSessionSource>,
    ) -> Result<Option<NtsSessionSource>, CommandFailure> {
        if !self.nts {
            return Ok(imported);
        }
        let algorithms = match self.nts_algorithm {
            None => vec![AeadAlgorithm::AesSivCmac256, AeadAlgorithm::Aes128GcmSiv],
            Some(AeadAlgorithmArg::AesSivCmac256) => vec![AeadAlgorithm::AesSivCmac256],
            Some(AeadAlgorithmArg::Aes128GcmSiv) => vec![AeadAlgorithm::Aes128GcmSiv],
        };
        Ok(Some(NtsSessionSource::Exchanges(NtsOptions {
            ke_server: self.nts_ke.unwrap_or_else(|| target.with_port(KE_PORT)),
            name: self.nts_name,
            trust: TrustAnchors::from_pem_file(self.ca.as_deref())
                .map_err(CommandFailure::usage)?,
            algorithms,
            sessions: self.nts_sessions.unwrap_or(SessionCount::Shared(SESSIONS_DEFAULT)),
            share: self.nts_share,
        })))
    }
}
