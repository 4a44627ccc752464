//! The flags of `horolog load ntp` and `horolog load mix` that have requests authenticated.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use horolog_load::nts::{
    Algorithm, KE_PORT, NtsOptions, SESSIONS, SESSIONS_MAX, SessionCount, Sessions, Trust,
};
use horolog_load::target::TargetName;

use crate::failure::Failure;
use crate::secret::SecretText;

/// How requests are authenticated by NTS.
#[derive(Args, Debug, Default)]
pub(crate) struct NtsArgs {
    /// Authenticate requests by NTS and verify the replies; sessions are established before the
    /// first request.
    #[arg(long, requires = "ca")]
    nts: bool,
    /// The server for NTS key establishment: HOST or HOST:PORT [default: the target, port 4460].
    #[arg(long, value_name = "HOST", requires = "nts", value_parser = establishment)]
    nts_ke: Option<TargetName>,
    /// PEM file of the certificates to trust in key establishment.
    #[arg(long, value_name = "FILE", requires = "nts")]
    ca: Option<PathBuf>,
    /// The name that the certificate has to be for [default: the one that the server is called by].
    #[arg(long, value_name = "NAME", requires = "nts")]
    nts_name: Option<String>,
    /// Sessions, each with keys of its own: a number, shared by all clients, whose cookies are used
    /// again and again; or 'each' for one of its own for each client, which uses a cookie once and
    /// takes new ones out of replies [default: 16].
    #[arg(long, value_name = "N|each", requires = "nts", value_parser = sessions)]
    nts_sessions: Option<SessionCount>,
    /// How many requests in a hundred are authenticated; the rest is plain.
    #[arg(long, value_name = "PERCENT", requires = "nts", default_value_t = 100,
          value_parser = clap::value_parser!(u8).range(0..=100))]
    nts_share: u8,
    /// The AEAD algorithm to ask for [default: AES-SIV-CMAC-256, or what the server has].
    #[arg(long, value_enum, value_name = "NAME", requires = "nts")]
    nts_algorithm: Option<AlgorithmArg>,
    /// Authenticate requests by this session of AEAD_AES_SIV_CMAC_256 instead: the client's key and
    /// a cookie in hexadecimal digits, and the server's key to open the replies with; without that
    /// they are judged by what stands in the clear.
    #[arg(long, value_name = "C2S,COOKIE[,S2C]", value_parser = SecretText::read,
          conflicts_with = "nts")]
    nts_cookie: Option<SecretText>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum AlgorithmArg {
    #[value(name = "aes-siv-cmac-256")]
    AesSivCmac256,
    #[value(name = "aes-128-gcm-siv")]
    Aes128GcmSiv,
}

pub(crate) fn establishment(text: &str) -> Result<TargetName, String> {
    TargetName::parse(text, KE_PORT).map_err(|error| error.to_string())
}

fn sessions(text: &str) -> Result<SessionCount, String> {
    match text.parse() {
        _ if text == "each" => Ok(SessionCount::Each),
        Ok(count) if (1..=SESSIONS_MAX).contains(&count) => Ok(SessionCount::Shared(count)),
        _ => Err(format!("write a number of sessions from 1 to {SESSIONS_MAX}, or 'each'")),
    }
}

impl NtsArgs {
    /// The session that was handed over.
    pub(crate) fn given(&self) -> Result<Option<Arc<Sessions>>, Failure> {
        let given =
            self.nts_cookie.as_ref().map(|text| text.session("--nts-cookie")).transpose()?;
        Ok(given.map(|session| Arc::new(Sessions::given(&session))))
    }

    /// A command without what is secret of these arguments.
    pub(crate) fn hide(&self, command: Vec<String>) -> Vec<String> {
        match &self.nts_cookie {
            None => command,
            Some(secret) => secret.hide(command),
        }
    }

    pub(crate) fn resolve(self, target: &TargetName) -> Result<Option<NtsOptions>, Failure> {
        if !self.nts {
            return Ok(None);
        }
        let algorithms = match self.nts_algorithm {
            None => vec![Algorithm::AesSivCmac256, Algorithm::Aes128GcmSiv],
            Some(AlgorithmArg::AesSivCmac256) => vec![Algorithm::AesSivCmac256],
            Some(AlgorithmArg::Aes128GcmSiv) => vec![Algorithm::Aes128GcmSiv],
        };
        Ok(Some(NtsOptions {
            establishment: self.nts_ke.unwrap_or_else(|| target.with_port(KE_PORT)),
            name: self.nts_name,
            trust: Trust::from_pem_file(self.ca.as_deref()).map_err(Failure::usage)?,
            algorithms,
            sessions: self.nts_sessions.unwrap_or(SessionCount::Shared(SESSIONS)),
            share: self.nts_share,
        }))
    }
}
