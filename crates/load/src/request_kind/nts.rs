//! NTP requests of which all or a share are authenticated by NTS (RFC 8915).

use std::net::SocketAddr;
use std::sync::Arc;

use horolog_record::RequestMode;

use super::{CURRENT_VERSION, NtpRequestOptions, RequestBehaviour, RequestKind};
use crate::engine::EngineError;
use crate::nts::{
    CLIENTS_WITH_SESSIONS, ImportedSession, NtsError, NtsOptions, NtsSessions, SessionCount,
};
use crate::options::LoadOptions;
use crate::plan::RunPlan;
use crate::request_tracker::ExpectedReplies;
use crate::trailer::RequestTrailer;
use crate::verify::ReplyVerifier;

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

    pub(super) const fn existing(&self) -> Option<&Arc<NtsSessions>> {
        match self {
            Self::Existing(sessions) => Some(sessions),
            Self::Exchanges(_) => None,
        }
    }

    /// Runs the NTS-KE exchanges, for a load on `target` by `clients` clients or the default
    /// number, and returns the sessions; existing ones are returned as they are.
    pub(super) fn open(
        &self,
        options: &LoadOptions,
        target: SocketAddr,
        clients: Option<u32>,
    ) -> Result<Self, NtsError> {
        let Self::Exchanges(nts) = self else { return Ok(self.clone()) };
        if nts.sessions == SessionCount::PerClient && options.random_sources {
            return Err(NtsError::RandomSources);
        }
        let clients = clients.unwrap_or(CLIENTS_WITH_SESSIONS);
        let (family, interface) = (options.family, options.hints.interface.as_deref());
        let sessions = NtsSessions::open_sessions(nts, target, family, interface, clients)?;
        Ok(Self::Existing(Arc::new(sessions)))
    }
}

impl RequestBehaviour for NtsSessionSource {
    fn mode(&self) -> RequestMode {
        RequestMode::NtpNts
    }

    fn unsupported_by_xdp(&self) -> Option<(&'static str, &'static str)> {
        let remedy = "use --engine packet or udp with --nts";
        Some(("BPF programs cannot authenticate requests", remedy))
    }

    fn compliant_requests(&self) -> RequestKind {
        RequestKind::Ntp(NtpRequestOptions::default())
    }

    fn client_count(&self) -> Option<u32> {
        self.existing()?.per_client_sessions()
    }

    /// Returns true if each client has its own session, whose cookies come from its replies.
    fn depends_on_replies(&self) -> bool {
        self.client_count().is_some()
    }

    fn request_trailer(&self, lane: (usize, usize)) -> Result<Option<RequestTrailer>, EngineError> {
        let sessions = self.existing().map(|all| all.lane_sessions(CURRENT_VERSION, lane));
        Ok(sessions.transpose()?.map(RequestTrailer::Nts))
    }

    fn expected_replies(&self, plan: &RunPlan, _: u32, _: (usize, usize)) -> ExpectedReplies {
        let expected = ReplyVerifier { extended: true, ..ReplyVerifier::plain(plan.token) };
        ExpectedReplies::Ntp(expected)
    }
}
