//! Authenticated requests (NTS, RFC 8915): sessions from NTS-KE exchanges, requests sealed at
//! sending, replies opened on arrival.
//!
//! A request carries its token in the authenticated part, so it can only be sealed at its send
//! time. Its unique identifier is derived from the token, so no state is kept until the reply.
//!
//! All simulated clients share a few sessions, or each client has its own. Clients that share a
//! session reuse its cookie, which real clients do not: a reused cookie costs the server the same
//! as a fresh one, and lost replies do not exhaust the cookies. A client with its own session uses
//! each cookie once, stores new ones from replies, and requests as many as it lacks (RFC 8915,
//! section 5.7). It reuses the last cookie only if none is left.

mod lane;
mod probe;
mod renewal;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use horolog_ke::{NtsKeClient, NtsKeError, SessionMaterial as KeyMaterial};
use horolog_nts::{
    COOKIE_LEN_MAX, CookieKeys, NonceStream, PAST_PERIODS_DEFAULT, ROTATION_DEFAULT, SessionKeys,
    request_len,
};
use horolog_record::Finding;
use horolog_sys::clock::ClockRealtime;
use horolog_sys::explain::explain;
use horolog_time::Clock;
use thiserror::Error;

pub use horolog_ke::{PORT as KE_PORT, TrustAnchors};
pub use horolog_nts::{
    AeadAlgorithm, CookieMasterSecret, CookieMasterSecretError, ImportedSession,
    ImportedSessionError,
};

pub use self::lane::LaneSessions;
pub(crate) use self::lane::NtsReplyError;
use self::lane::{LaneSession, sessions_of};
use self::renewal::{RenewalThread, SessionRenewalState};
use crate::target::{AddressFamily, TargetName, TargetNameError};

/// Default number of sessions: enough that a server which processes several packets at once uses
/// several keys, and few enough that the NTS-KE exchanges take negligible time.
pub const SESSIONS_DEFAULT: usize = 16;

/// Largest number of sessions: each needs a TLS handshake before the run.
pub const SESSIONS_MAX: usize = 65_536;

/// Default number of clients if each has its own session.
pub const CLIENTS_WITH_SESSIONS: u32 = 1000;

/// Largest number of concurrent NTS-KE exchanges.
const CONCURRENT_EXCHANGES_MAX: usize = 16;

/// Longest request with cookie placeholders, in bytes, so that requests are not fragmented.
const REQUEST_LEN_MAX: usize = 1280;

/// Timeout of one NTS-KE exchange.
const NTS_KE_TIMEOUT: Duration = Duration::from_secs(10);

/// Options for authentication of requests.
#[derive(Clone, Debug)]
pub struct NtsOptions {
    /// NTS-KE server.
    pub ke_server: TargetName,
    /// Expected name in the server's certificate; `None` uses the host name of `ke_server`.
    pub name: Option<String>,
    /// Trusted certificates.
    pub trust: TrustAnchors,
    /// AEAD algorithms to offer, in order of preference.
    pub algorithms: Vec<AeadAlgorithm>,
    /// Number of sessions.
    pub sessions: SessionCount,
    /// Share of authenticated requests in percent, from 0 to 100.
    pub share: u8,
}

/// Number of sessions, shared or per client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionCount {
    /// From 1 to [`SESSIONS_MAX`] sessions, shared by all clients.
    Shared(usize),
    /// One session for each client.
    PerClient,
}

/// Reason for which sessions are unavailable.
#[derive(Debug, Error)]
pub enum NtsError {
    /// The NTS-KE server has no address.
    #[error(transparent)]
    Target(#[from] TargetNameError),
    /// The NTS-KE exchange cannot start.
    #[error(transparent)]
    NtsKe(#[from] NtsKeError),
    /// An NTS-KE exchange failed.
    #[error(
        "no keys from {server} for one of {count} NTS sessions: {source}; {hint}",
        hint = source.hint()
    )]
    Refused {
        /// NTS-KE server.
        server: SocketAddr,
        /// Sessions requested.
        count: usize,
        /// Error of the exchange.
        source: NtsKeError,
    },
    /// The keys do not have the length of the negotiated AEAD algorithm.
    #[error("the NTS-KE server's keys do not match algorithm {0}")]
    Keys(u16),
    /// All cookies are too long for a request.
    #[error(
        "the NTS-KE server's cookies of {0} bytes do not fit into a request; configure the server \
         to issue shorter ones"
    )]
    Cookies(usize),
    /// Random numbers for nonces are unavailable.
    #[error("cannot read random numbers: {0}")]
    Random(String),
    /// The renewal thread cannot be started.
    #[error("cannot start the thread that renews NTS keys: {}", explain(.0))]
    Thread(std::io::Error),
    /// Number of sessions out of range.
    #[error("the number of NTS sessions must be from 1 to {SESSIONS_MAX}, not {0}")]
    Sessions(usize),
    /// Share out of range.
    #[error("the share of authenticated requests must be from 0 to 100, not {0}")]
    Share(u8),
    /// NTS requires version 4.
    #[error("NTS is defined for NTP version 4 only, not for version {0}")]
    Version(u8),
    /// Random sources cannot have a session each.
    #[error(
        "there would be too many NTS sessions with one for each random source; let several \
             share one session"
    )]
    RandomSources,
    /// NTS and interleaved mode cannot be combined.
    #[error("NTS cannot be combined with interleaved mode; omit one of the two")]
    Interleaved,
    /// The trailer cannot be combined with NTS, whose authenticated part ends the packet.
    #[error("NTS cannot be combined with --key or --extension; omit one of the two")]
    Trailer,
}

impl NtsError {
    /// Returns true if other options would help.
    pub(crate) const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Sessions(_)
                | Self::Share(_)
                | Self::Version(_)
                | Self::Interleaved
                | Self::Trailer
                | Self::RandomSources
                | Self::NtsKe(NtsKeError::NoAuthority | NtsKeError::InvalidName(_))
        )
    }
}

fn random_error(error: impl fmt::Display) -> NtsError {
    NtsError::Random(error.to_string())
}

fn check_sessions(sessions: usize, share: u8) -> Result<(), NtsError> {
    if !(1..=SESSIONS_MAX).contains(&sessions) {
        return Err(NtsError::Sessions(sessions));
    }
    if share > 100 { Err(NtsError::Share(share)) } else { Ok(()) }
}

/// NTS sessions of a run: keys and cookies, and their renewal.
pub struct NtsSessions {
    sessions: Vec<SessionSecrets>,
    share: u8,
    /// True if each client has its own session.
    is_per_client: bool,
    /// True if the server-to-client keys are known, so that replies can be decrypted.
    can_open: bool,
    renewal: Arc<SessionRenewalState>,
    /// Thread that renews the sessions; `None` without a known NTS-KE server.
    renewer: Option<Arc<RenewalThread>>,
    /// Findings of the NTS-KE exchanges.
    findings: Vec<Finding>,
}

/// NTS-KE server, and the parameters of its exchanges.
struct NtsKeTarget {
    client: NtsKeClient,
    name: String,
    address: SocketAddr,
    count: usize,
}

impl NtsKeTarget {
    fn new(
        options: &NtsOptions,
        family: Option<AddressFamily>,
        interface: Option<&str>,
        count: usize,
    ) -> Result<Self, NtsError> {
        let address = options.ke_server.resolve(family, interface)?;
        let algorithms: Vec<_> = options.algorithms.iter().map(|one| one.number()).collect();
        let client = NtsKeClient::new(&options.trust, &algorithms)?;
        let name =
            options.name.as_deref().unwrap_or(options.ke_server.host_without_zone()).to_owned();
        Ok(Self { client, name, address, count })
    }

    fn run_exchange(&self) -> Result<(SessionSecrets, KeyMaterial), NtsError> {
        let (server, count) = (self.address, self.count);
        let refused = |source| NtsError::Refused { server, count, source };
        let material =
            self.client.exchange_keys(&self.name, server, NTS_KE_TIMEOUT).map_err(refused)?;
        let keys = AeadAlgorithm::from_number(material.algorithm)
            .and_then(|algorithm| SessionKeys::new(algorithm, &material.c2s, &material.s2c).ok())
            .ok_or(NtsError::Keys(material.algorithm))?;
        let fits = |len: usize| request_len(keys.algorithm(), len, 0) <= REQUEST_LEN_MAX;
        let cookies = material.cookies.iter().filter(|cookie| fits(cookie.len()));
        let cookies: Vec<_> = cookies.cloned().collect();
        if cookies.is_empty() {
            return Err(NtsError::Cookies(
                material.cookies.iter().map(Vec::len).max().unwrap_or(0),
            ));
        }
        Ok(((keys, cookies), material))
    }

    fn open_session(&self) -> Result<SessionSecrets, NtsError> {
        self.run_exchange().map(|(session, _)| session)
    }

    /// Runs the first exchange. Reports a finding if the server names another NTP server than
    /// `target`. If the keys of the algorithm are ambiguous, tests them with one request; if they
    /// do not match, returns no session and a target that no longer offers the algorithm.
    fn run_first_exchange(
        self,
        target: SocketAddr,
    ) -> Result<(Self, Vec<SessionSecrets>, Vec<Finding>), NtsError> {
        let ((keys, cookies), material) = self.run_exchange()?;
        let mut findings: Vec<_> =
            probe::other_server_finding(&material, target).into_iter().collect();
        if material.keys_uncertain && !probe::may_fit(&keys, &cookies, target) {
            findings.push(probe::algorithm_abandoned());
            return Ok((
                Self { client: self.client.fallback_client(), ..self },
                Vec::new(),
                findings,
            ));
        }
        Ok((self, vec![(keys, cookies)], findings))
    }
}

/// Keys and cookies of a session.
type SessionSecrets = (SessionKeys, Vec<Vec<u8>>);

impl NtsSessions {
    /// Runs the NTS-KE exchanges for a load on `target` by `clients` clients. `interface` is the
    /// zone of a link-local NTS-KE address without one.
    pub fn open_sessions(
        options: &NtsOptions,
        target: SocketAddr,
        family: Option<AddressFamily>,
        interface: Option<&str>,
        clients: u32,
    ) -> Result<Self, NtsError> {
        let (count, is_per_client) = match options.sessions {
            SessionCount::Shared(count) => (count, false),
            SessionCount::PerClient => (clients as usize, true),
        };
        check_sessions(count, options.share)?;
        let ke = NtsKeTarget::new(options, family, interface, count)?;
        let (ke, first, findings) = ke.run_first_exchange(target)?;
        let mut established = run_exchanges(count - first.len(), &|| ke.open_session())?;
        established.extend(first);
        let renewal = Arc::new(SessionRenewalState::default());
        let run_exchanges = move || run_exchanges(count, &|| ke.open_session());
        let renewer = RenewalThread::start(Arc::clone(&renewal), run_exchanges);
        let renewer = Some(Arc::new(renewer.map_err(NtsError::Thread)?));
        let share = options.share;
        Ok(Self {
            sessions: established,
            share,
            is_per_client,
            can_open: true,
            renewal,
            renewer,
            findings,
        })
    }

    /// Creates sessions without renewal. `is_per_client` is true if each client has its own,
    /// `can_open` if replies can be decrypted.
    fn without_renewal(
        established: Vec<SessionSecrets>,
        share: u8,
        is_per_client: bool,
        can_open: bool,
    ) -> Self {
        let (renewal, renewer, findings) = (Arc::default(), None, Vec::new());
        Self { sessions: established, share, is_per_client, can_open, renewal, renewer, findings }
    }

    /// Returns the findings on the NTS-KE exchanges and on renewals, at the end of a run.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let renewed = self.renewal.finding(self.renewer.is_some());
        self.findings.iter().cloned().chain(renewed).collect()
    }

    /// Creates `count` sessions without NTS-KE: generates keys, and seals them in cookies as a
    /// server with this master secret and the default key rotation does. `share` percent of the
    /// requests are authenticated.
    pub fn from_master_secret(
        secret: &CookieMasterSecret,
        algorithm: AeadAlgorithm,
        count: usize,
        share: u8,
    ) -> Result<Self, NtsError> {
        check_sessions(count, share)?;
        let server =
            CookieKeys::new(secret, ROTATION_DEFAULT, PAST_PERIODS_DEFAULT, ClockRealtime.now());
        let mut nonces = NonceStream::new().map_err(random_error)?;
        let one = |_| {
            let keys = SessionKeys::generate(algorithm).map_err(random_error)?;
            let (mut cookie, mut nonce) = (vec![0; COOKIE_LEN_MAX], [0; 16]);
            nonces.fill(&mut nonce);
            let len = server.seal(&keys, nonce, &mut cookie);
            cookie.truncate(len);
            Ok((keys, vec![cookie]))
        };
        let established = (0..count).map(one).collect::<Result<_, NtsError>>()?;
        Ok(Self::without_renewal(established, share, false, true))
    }

    /// Creates sessions from one imported session, which authenticates all requests.
    #[must_use]
    pub fn from_imported(session: &ImportedSession) -> Self {
        let cookies = vec![session.cookie().to_vec()];
        let established = vec![(session.keys().clone(), cookies)];
        Self::without_renewal(established, 100, false, session.can_open_replies())
    }

    /// Returns the number of sessions if each client has its own; otherwise `None`.
    #[must_use]
    pub const fn per_client_sessions(&self) -> Option<u32> {
        if self.is_per_client { Some(self.sessions.len() as u32) } else { None }
    }

    /// Returns true if replies can be decrypted, and are therefore authenticated.
    #[must_use]
    pub const fn can_open(&self) -> bool {
        self.can_open
    }

    /// Creates sessions from known keys and cookies, at least one of each.
    #[cfg(test)]
    pub(crate) fn from_secrets(
        established: Vec<SessionSecrets>,
        share: u8,
        is_per_client: bool,
    ) -> Self {
        Self::without_renewal(established, share, is_per_client, true)
    }

    /// Returns the sessions for lane `lane` of `lanes`: all of them, or those of its own clients.
    pub(crate) fn lane_sessions(
        &self,
        version: u8,
        (lane, lanes): (usize, usize),
    ) -> Result<LaneSessions, NtsError> {
        // Every `lanes`-th session, so that the lane has as many as clients.
        let (first, step) = if self.is_per_client { (lane, lanes) } else { (0, 1) };
        let sessions =
            sessions_of(&self.sessions, (first, step), self.is_per_client, self.can_open);
        let longest = sessions.iter().map(LaneSession::request_len_max).max();
        Ok(LaneSessions {
            request: vec![0; longest.unwrap_or(0)].into_boxed_slice(),
            sessions,
            share: self.share.into(),
            nonces: NonceStream::new().map_err(random_error)?,
            version,
            is_per_client: self.is_per_client,
            stored_cookies: 0,
            selection: (first, step),
            counts: self.renewal.register_lane(),
            renewal: Arc::clone(&self.renewal),
            renewer: self.renewer.clone(),
            generation: 0,
        })
    }
}

impl fmt::Debug for NtsSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.sessions.len();
        f.debug_struct("NtsSessions").field("count", &count).finish_non_exhaustive()
    }
}

/// Runs `count` exchanges, in one thread for every 16 of them, at most
/// [`CONCURRENT_EXCHANGES_MAX`]. An error of any exchange is returned instead of the sessions.
fn run_exchanges(
    count: usize,
    one: &(dyn Fn() -> Result<SessionSecrets, NtsError> + Sync),
) -> Result<Vec<SessionSecrets>, NtsError> {
    let threads = count.div_ceil(CONCURRENT_EXCHANGES_MAX).min(CONCURRENT_EXCHANGES_MAX);
    thread::scope(|scope| {
        let share = |thread: usize| (thread..count).step_by(threads).map(|_| one());
        let tasks: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || share(thread).collect())).collect();
        let results = tasks
            .into_iter()
            .map(|task| task.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let parts: Result<Vec<Vec<_>>, NtsError> = results.collect();
        Ok(parts?.into_iter().flatten().collect())
    })
}

#[cfg(test)]
mod tests;
