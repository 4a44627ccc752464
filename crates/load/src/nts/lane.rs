//! NTS sessions of one lane: seals requests when they are sent and opens replies when they arrive,
//! without allocation except after a renewal.

use std::fmt;
use std::sync::Arc;

use horolog_nts::{
    COOKIES_MAX, ClientSession, NonceStream, ReplyError, RequestTemplate, UNIQUE_ID_LEN,
    examine_reply, request_len,
};

use super::renewal::{LaneNtsCounters, RenewalThread, SessionRenewalState};
use super::{REQUEST_LEN_MAX, SessionSecrets};
use crate::random::SplitMix64;
use crate::request::{self, RequestTimestamps};

/// Returns the sessions of a lane: every `step`-th, beginning with number `first`.
pub(super) fn sessions_of(
    established: &[SessionSecrets],
    (first, step): (usize, usize),
    is_per_client: bool,
    can_open: bool,
) -> Vec<LaneSession> {
    let lane_secrets = established.iter().skip(first).step_by(step);
    lane_secrets.map(|one| LaneSession::new(one, is_per_client, can_open)).collect()
}

pub(super) struct LaneSession {
    template: RequestTemplate,
    /// Cookie store and decryption of replies; `None` if the server-to-client key is unknown.
    client: Option<ClientSession>,
    /// Largest number of cookie placeholders in a request; `None` if cookies are reused and never
    /// replaced.
    placeholders_max: Option<usize>,
}

impl LaneSession {
    pub(super) fn new(
        (keys, cookies): &SessionSecrets,
        is_per_client: bool,
        can_open: bool,
    ) -> Self {
        let cookie = cookies.first().map_or(&[][..], |one| one);
        let fits = |placeholders: &usize| {
            request_len(keys.algorithm(), cookie.len(), *placeholders) <= REQUEST_LEN_MAX
        };
        let placeholders_max =
            is_per_client.then(|| (0..COOKIES_MAX).rev().find(fits).unwrap_or_default());
        Self {
            template: RequestTemplate::new(keys, cookie, placeholders_max.unwrap_or_default()),
            client: can_open.then(|| ClientSession::new(keys, cookies.iter().map(Vec::as_slice))),
            placeholders_max,
        }
    }

    pub(super) const fn request_len_max(&self) -> usize {
        let placeholders = match self.placeholders_max {
            Some(placeholders) => placeholders,
            None => 0,
        };
        self.template.request_len(placeholders)
    }

    /// Takes a cookie for the next request. Returns the number of placeholders, and true if the
    /// cookie was used before. Sessions that always reuse their cookie return `(0, false)`.
    fn prepare_next(&mut self) -> (usize, bool) {
        let (Some(most), Some(client)) = (self.placeholders_max, &mut self.client) else {
            return (0, false);
        };
        let cookie = client.take_cookie();
        let fresh = cookie.is_some_and(|cookie| self.template.replace_cookie(&cookie));
        let missing = (COOKIES_MAX - 1).saturating_sub(client.cookie_count());
        (missing.min(most), !fresh)
    }
}

/// Sessions of one lane, which seals and opens without allocation.
pub struct LaneSessions {
    pub(super) sessions: Vec<LaneSession>,
    pub(super) share: u64,
    pub(super) nonces: NonceStream,
    pub(super) version: u8,
    pub(super) request: Box<[u8]>,
    /// True if each client has its own session and should use every cookie once.
    pub(super) is_per_client: bool,
    /// Number of cookies stored from the last opened reply.
    pub(super) stored_cookies: usize,
    /// Index of the lane's first session, and the step to its next.
    pub(super) selection: (usize, usize),
    pub(super) counts: Arc<LaneNtsCounters>,
    pub(super) renewal: Arc<SessionRenewalState>,
    pub(super) renewer: Option<Arc<RenewalThread>>,
    /// Number of the renewal that these sessions come from; 0 before the first.
    pub(super) generation: u64,
}

impl LaneSessions {
    /// Returns the length of the longest request, in bytes.
    pub(crate) const fn request_len_max(&self) -> usize {
        self.request.len()
    }

    /// Returns true if the request with this sequence number is authenticated: the configured
    /// percentage of any hundred in a row, spread evenly.
    pub(crate) const fn is_authenticated(&self, sequence: u32) -> bool {
        let before = sequence as u64 * self.share / 100;
        (sequence as u64 + 1) * self.share / 100 > before
    }

    /// Returns true if reused cookies must be counted.
    pub(crate) const fn counts_reused(&self) -> bool {
        self.is_per_client
    }

    /// Returns the payload of an authenticated request. Increments `reused` if the cookie was used
    /// before and `reused` is `Some`.
    pub(crate) fn seal(
        &mut self,
        client: u32,
        timestamps: RequestTimestamps,
        reused: &mut Option<u64>,
    ) -> &[u8] {
        if self.renewal.generation() != self.generation {
            self.adopt_renewed();
        }
        self.counts.sealed();
        let mut nonce = [0; 16];
        self.nonces.fill(&mut nonce);
        let header = request::ntp_payload(self.version, timestamps);
        let index = client as usize % self.sessions.len();
        let session = &mut self.sessions[index];
        let (placeholders, is_reused) = session.prepare_next();
        if let Some(count) = reused {
            *count += u64::from(is_reused);
        }
        let id = unique_id(timestamps.transmit);
        let len = session.template.seal(&header, &id, &nonce, placeholders, &mut self.request);
        &self.request[..len]
    }

    /// Adopts the renewed sessions, unless their number differs or their requests would be too long
    /// for the engine's buffers.
    fn adopt_renewed(&mut self) {
        self.generation = self.renewal.generation();
        let sessions =
            sessions_of(&self.renewal.newest_sessions(), self.selection, self.is_per_client, true);
        let fits = |session: &LaneSession| session.request_len_max() <= self.request.len();
        if sessions.len() == self.sessions.len() && sessions.iter().all(fits) {
            self.sessions = sessions;
        }
    }

    /// Returns the payload of a request without NTS.
    pub(crate) fn plain_request(&mut self, timestamps: RequestTimestamps) -> &[u8] {
        let payload = request::ntp_payload(self.version, timestamps);
        self.request[..payload.len()].copy_from_slice(&payload);
        &self.request[..payload.len()]
    }

    /// Verifies and decrypts a reply to a client's request with this transmit timestamp, as far as
    /// keys are known, and stores its cookies. Refuses a reply longer than the longest request.
    pub(crate) fn open(
        &mut self,
        client: u32,
        transmit: u64,
        reply: &[u8],
    ) -> Result<(), NtsReplyError> {
        let index = client as usize % self.sessions.len();
        let session = &mut self.sessions[index];
        // The length of each request in flight is not stored, so the longest one is the limit.
        if reply.len() > session.request_len_max() {
            return Err(NtsReplyError::TooLong);
        }
        let id = unique_id(transmit);
        let result = match &mut session.client {
            // Cookies beyond the limit of the store are discarded.
            Some(client) => {
                let before = client.cookie_count();
                let opened = client.open_reply(reply, &id).map(drop);
                self.stored_cookies = client.cookie_count() - before;
                opened
            }
            None => examine_reply(reply, &id),
        };
        match result {
            Ok(()) => self.counts.authentic(),
            Err(ReplyError::CookieRefused) => {
                self.counts.refused();
                if let Some(renewer) = &self.renewer {
                    renewer.refused();
                }
            }
            Err(_) => {}
        }
        result.map_err(NtsReplyError::Invalid)
    }

    /// Discards the cookies stored from the last opened reply to `client`, which was a duplicate.
    pub(crate) fn discard_stored_cookies(&mut self, client: u32) {
        let index = client as usize % self.sessions.len();
        if let Some(client) = &mut self.sessions[index].client {
            for _ in 0..std::mem::take(&mut self.stored_cookies) {
                drop(client.take_cookie());
            }
        }
    }
}

impl fmt::Debug for LaneSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneSessions").field("share", &self.share).finish_non_exhaustive()
    }
}

/// Reason for which a reply to an authenticated request is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NtsReplyError {
    /// Longer than the longest request of the session.
    TooLong,
    /// Not authentic, or refused by the server.
    Invalid(ReplyError),
}

/// Returns the unique identifier of the request with this transmit timestamp, by a pseudo-random
/// function. The server can compute it as well, because it receives the timestamp unencrypted.
pub(super) fn unique_id(transmit: u64) -> [u8; UNIQUE_ID_LEN] {
    let mut random = SplitMix64::new(transmit);
    let mut id = [0; UNIQUE_ID_LEN];
    for chunk in id.chunks_exact_mut(8) {
        chunk.copy_from_slice(&random.next_u64().to_be_bytes());
    }
    id
}
