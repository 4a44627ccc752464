//! Kinds of requests: what the clients of a load, or of one part of a mix, send. The command that
//! starts a run makes the value, and everything after it takes the protocol from it.

use std::net::SocketAddr;
use std::sync::Arc;

use horolog_record::RequestMode;

use crate::error::LoadError;
use crate::nts::{
    CLIENTS_WITH_SESSIONS, ImportedSession, NtsError, NtsOptions, NtsSessions, SessionCount,
};
use crate::options::LoadOptions;
use crate::ptp::{PtpLoadTransport, PtpRequestOptions};
use crate::trailer::TrailerOptions;

/// NTP version of requests whose kind requires the current one.
const CURRENT_VERSION: u8 = 4;

/// Protocol and options of requests.
#[derive(Clone, Debug)]
pub enum RequestKind {
    /// NTP requests in basic or interleaved mode.
    Ntp(NtpRequestOptions),
    /// NTP requests of which all or a share are authenticated by NTS.
    Nts(NtsSessionSource),
    /// Requests to a PTP master.
    Ptp(PtpRequestOptions),
    /// NTP requests to a reflector, which returns them unchanged, instead of a time server; this
    /// measures the capacity of the path. Only the XDP engine supports it.
    Echo,
}

/// NTP requests: basic mode and version 4 by default.
#[derive(Clone, Debug)]
pub struct NtpRequestOptions {
    /// NTP version, 1 to 4.
    pub version: u8,
    /// True for interleaved mode (RFC 9769).
    pub interleaved: bool,
    /// Trailer after the header.
    pub trailer: TrailerOptions,
}

impl Default for NtpRequestOptions {
    fn default() -> Self {
        let (interleaved, trailer) = (false, TrailerOptions::default());
        Self { version: CURRENT_VERSION, interleaved, trailer }
    }
}

impl NtpRequestOptions {
    /// Returns requests in interleaved mode.
    #[must_use]
    pub fn interleaved() -> Self {
        Self { interleaved: true, ..Self::default() }
    }
}

/// Source of the NTS sessions that authenticate requests.
#[derive(Clone, Debug)]
pub enum NtsSessionSource {
    /// NTS-KE exchanges, which run before the first request.
    Exchanges(NtsOptions),
    /// Existing sessions.
    Existing(Arc<NtsSessions>),
}

impl NtsSessionSource {
    /// Returns one imported session, which authenticates all requests.
    #[must_use]
    pub fn imported(session: &ImportedSession) -> Self {
        Self::Existing(Arc::new(NtsSessions::from_imported(session)))
    }
}

impl From<NtpRequestOptions> for RequestKind {
    fn from(options: NtpRequestOptions) -> Self {
        Self::Ntp(options)
    }
}

impl From<NtsSessionSource> for RequestKind {
    fn from(source: NtsSessionSource) -> Self {
        Self::Nts(source)
    }
}

impl From<PtpRequestOptions> for RequestKind {
    fn from(options: PtpRequestOptions) -> Self {
        Self::Ptp(options)
    }
}

impl RequestKind {
    /// Returns NTP requests with these options, authenticated if `nts` is given. An error if the
    /// options exclude NTS.
    pub fn ntp(
        options: NtpRequestOptions,
        nts: Option<NtsSessionSource>,
    ) -> Result<Self, LoadError> {
        let Some(nts) = nts else { return Ok(Self::Ntp(options)) };
        check_version(options.version)?;
        if options.version != CURRENT_VERSION {
            return Err(NtsError::Version(options.version).into());
        }
        if options.interleaved {
            return Err(NtsError::Interleaved.into());
        }
        if !options.trailer.is_empty() {
            return Err(NtsError::Trailer.into());
        }
        Ok(Self::Nts(nts))
    }

    /// Returns the mode for the record.
    #[must_use]
    pub const fn mode(&self) -> RequestMode {
        match self {
            Self::Ntp(options) if options.interleaved => RequestMode::NtpInterleaved,
            Self::Ntp(_) => RequestMode::NtpBasic,
            Self::Nts(_) => RequestMode::NtpNts,
            Self::Ptp(options) => options.mode(),
            Self::Echo => RequestMode::Echo,
        }
    }

    /// Returns the NTP version of the requests; 4 for other protocols.
    #[must_use]
    pub const fn version(&self) -> u8 {
        match self {
            Self::Ntp(options) => options.version,
            Self::Nts(_) | Self::Ptp(_) | Self::Echo => CURRENT_VERSION,
        }
    }

    /// Returns true if requests are in interleaved mode.
    #[must_use]
    pub const fn is_interleaved(&self) -> bool {
        matches!(self, Self::Ntp(options) if options.interleaved)
    }

    /// Returns the options of requests to a PTP master; `None` for other requests.
    #[must_use]
    pub const fn ptp(&self) -> Option<PtpRequestOptions> {
        match self {
            Self::Ptp(options) => Some(*options),
            Self::Ntp(_) | Self::Nts(_) | Self::Echo => None,
        }
    }

    /// Returns the existing NTS sessions that authenticate requests.
    #[must_use]
    pub const fn sessions(&self) -> Option<&Arc<NtsSessions>> {
        match self {
            Self::Nts(NtsSessionSource::Existing(sessions)) => Some(sessions),
            _ => None,
        }
    }

    /// Returns the trailer of requests that are not authenticated by NTS; `None` for plain ones.
    #[must_use]
    pub const fn trailer(&self) -> Option<&TrailerOptions> {
        match self {
            Self::Ntp(options) if !options.trailer.is_empty() => Some(&options.trailer),
            _ => None,
        }
    }

    /// Returns true if requests are sent over Ethernet without IP.
    #[must_use]
    pub fn is_over_ethernet(&self) -> bool {
        self.ptp().is_some_and(|ptp| ptp.transport == PtpLoadTransport::Ethernet)
    }

    /// Returns true if replies carry a transmit timestamp, so that its offset can be measured.
    #[must_use]
    pub fn reports_transmit_time(&self) -> bool {
        self.ptp().is_none_or(|ptp| ptp.reports_transmit_time())
    }

    /// Returns the requests of compliant clients beside a load of this kind, which keep no state:
    /// in basic mode and without NTS.
    pub(crate) fn without_state(&self) -> Self {
        match self {
            Self::Ntp(options) => {
                Self::Ntp(NtpRequestOptions { interleaved: false, ..options.clone() })
            }
            Self::Nts(_) => Self::Ntp(NtpRequestOptions::default()),
            Self::Ptp(_) | Self::Echo => self.clone(),
        }
    }

    /// Returns these requests with existing NTS sessions: runs the NTS-KE exchanges that they
    /// require, for a load on `target` by `clients` clients or the default number.
    pub(crate) fn with_sessions(
        &self,
        options: &LoadOptions,
        target: SocketAddr,
        clients: Option<u32>,
    ) -> Result<Self, NtsError> {
        let Self::Nts(NtsSessionSource::Exchanges(nts)) = self else { return Ok(self.clone()) };
        if nts.sessions == SessionCount::PerClient && options.random_sources {
            return Err(NtsError::RandomSources);
        }
        let clients = clients.unwrap_or(CLIENTS_WITH_SESSIONS);
        let interface = options.hints.interface.as_deref();
        let sessions = NtsSessions::open_sessions(nts, target, options.family, interface, clients)?;
        Ok(Self::Nts(NtsSessionSource::Existing(Arc::new(sessions))))
    }
}

/// Refuses an NTP version that does not exist.
pub(crate) const fn check_version(version: u8) -> Result<(), LoadError> {
    if matches!(version, 1..=4) { Ok(()) } else { Err(LoadError::Version(version)) }
}
