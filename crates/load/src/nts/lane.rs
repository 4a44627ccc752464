//! Sessions of one lane: requests sealed at sending, replies opened on arrival, without allocation
//! except when keys are renewed.

use std::fmt;
use std::sync::Arc;

use horolog_nts::{
    COOKIES_MAX, ClientSession, Nonces, ReplyError, RequestTemplate, UNIQUE_ID_LEN, examine_reply,
    request_len,
};

use super::renewal::{LaneNtsCounters, Renewer, SessionRenewal};
use super::{REQUEST_LEN_MAX, SessionSecrets};
use crate::random::SplitMix64;
use crate::request::{self, RequestTimestamps};

/// Returns the sessions of a lane: every n-th, starting with its first.
pub(super) fn sessions_of(
    established: &[SessionSecrets],
    (first, step): (usize, usize),
    each: bool,
    opens: bool,
) -> Vec<LaneSession> {
    let own = established.iter().skip(first).step_by(step);
    own.map(|one| LaneSession::new(one, each, opens)).collect()
}

pub(super) struct LaneSession {
    template: RequestTemplate,
    /// Stores cookies and opens replies, if the server's key is known.
    client: Option<ClientSession>,
    /// Most placeholders of a request; `None` if cookies are not consumed.
    placeholders_max: Option<usize>,
}

impl LaneSession {
    pub(super) fn new((keys, cookies): &SessionSecrets, each: bool, opens: bool) -> Self {
        let cookie = cookies.first().map_or(&[][..], |one| one);
        let fits = |placeholders: &usize| {
            request_len(keys.algorithm(), cookie.len(), *placeholders) <= REQUEST_LEN_MAX
        };
        let placeholders_max = each.then(|| (0..COOKIES_MAX).rev().find(fits).unwrap_or_default());
        Self {
            template: RequestTemplate::new(keys, cookie, placeholders_max.unwrap_or_default()),
            client: opens.then(|| ClientSession::new(keys, cookies.iter().map(Vec::as_slice))),
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

    /// Prepares the template for the next request: returns its number of placeholders, and whether
    /// its cookie was used before.
    fn next(&mut self) -> (usize, bool) {
        let (Some(most), Some(client)) = (self.placeholders_max, &mut self.client) else {
            return (0, false);
        };
        let cookie = client.take_cookie();
        let fresh = cookie.is_some_and(|cookie| self.template.renew(&cookie));
        let missing = (COOKIES_MAX - 1).saturating_sub(client.cookies());
        (missing.min(most), !fresh)
    }
}

/// A lane's own copy of the sessions, for sealing and opening without allocation.
pub struct LaneSessions {
    pub(super) sessions: Vec<LaneSession>,
    pub(super) share: u64,
    pub(super) nonces: Nonces,
    pub(super) version: u8,
    pub(super) request: Box<[u8]>,
    /// True if each client has its own session and should use every cookie once.
    pub(super) each: bool,
    /// Cookies stored from the reply opened last.
    pub(super) stored_cookies: usize,
    /// Selection of this lane's sessions.
    pub(super) part: (usize, usize),
    pub(super) counts: Arc<LaneNtsCounters>,
    pub(super) renewal: Arc<SessionRenewal>,
    pub(super) renewer: Option<Arc<Renewer>>,
    /// Number of renewals adopted.
    pub(super) generation: u64,
}

impl LaneSessions {
    /// Returns the length of the longest request, in bytes.
    pub(crate) const fn request_len_max(&self) -> usize {
        self.request.len()
    }

    /// Returns true if the request with this sequence number is authenticated: the configured
    /// percentage of any hundred in a row, spread evenly.
    pub(crate) const fn has(&self, sequence: u32) -> bool {
        let before = sequence as u64 * self.share / 100;
        (sequence as u64 + 1) * self.share / 100 > before
    }

    /// Returns true if reused cookies must be counted.
    pub(crate) const fn counts_reused(&self) -> bool {
        self.each
    }

    /// Returns the payload of a client's authenticated request; counts a reused cookie in `reused`,
    /// if these are counted.
    pub(crate) fn seal(
        &mut self,
        client: u32,
        timestamps: RequestTimestamps,
        reused: &mut Option<u64>,
    ) -> &[u8] {
        if self.renewal.generation() != self.generation {
            self.take_over();
        }
        self.counts.sealed();
        let mut nonce = [0; 16];
        self.nonces.fill(&mut nonce);
        let header = request::payload(self.version, timestamps);
        let index = client as usize % self.sessions.len();
        let session = &mut self.sessions[index];
        let (placeholders, again) = session.next();
        if let Some(count) = reused {
            *count += u64::from(again);
        }
        let id = unique_id(timestamps.transmit);
        let len = session.template.seal(&header, &id, &nonce, placeholders, &mut self.request);
        &self.request[..len]
    }

    /// Uses the newest keys from now on, unless requests would exceed the engine's buffers.
    fn take_over(&mut self) {
        self.generation = self.renewal.generation();
        let sessions = sessions_of(&self.renewal.fresh(), self.part, self.each, true);
        let fits = |session: &LaneSession| session.request_len_max() <= self.request.len();
        if sessions.len() == self.sessions.len() && sessions.iter().all(fits) {
            self.sessions = sessions;
        }
    }

    /// Returns the payload of a plain request.
    pub(crate) fn plain(&mut self, timestamps: RequestTimestamps) -> &[u8] {
        let payload = request::payload(self.version, timestamps);
        self.request[..payload.len()].copy_from_slice(&payload);
        &self.request[..payload.len()]
    }

    /// Checks that a reply to a client's request with this transmit timestamp is authentic, as far
    /// as can be verified, and no longer than the request was.
    pub(crate) fn open(&mut self, client: u32, transmit: u64, reply: &[u8]) -> Result<(), Fault> {
        let index = client as usize % self.sessions.len();
        let session = &mut self.sessions[index];
        // The number of placeholders of each request in flight is not stored.
        if reply.len() > session.request_len_max() {
            return Err(Fault::Longer);
        }
        let id = unique_id(transmit);
        let judged = match &mut session.client {
            // It stores no more cookies than its limit.
            Some(client) => {
                let before = client.cookies();
                let opened = client.open_reply(reply, &id).map(drop);
                self.stored_cookies = client.cookies() - before;
                opened
            }
            None => examine_reply(reply, &id),
        };
        match judged {
            Ok(()) => self.counts.authentic(),
            Err(ReplyError::Refused) => {
                self.counts.refused();
                if let Some(renewer) = &self.renewer {
                    renewer.refused();
                }
            }
            Err(_) => {}
        }
        judged.map_err(Fault::Reply)
    }

    /// Removes the cookies of the reply to `client` that was opened last: it was a duplicate, so
    /// they were stored already.
    pub(crate) fn give_back(&mut self, client: u32) {
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

/// Defect of a reply that should be authentic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Longer than its request.
    Longer,
    /// Not authentic.
    Reply(ReplyError),
}

/// Returns the unique identifier of the request with this transmit timestamp. It looks random
/// without knowledge of the timestamp, which the server receives in the clear with it.
pub(super) fn unique_id(transmit: u64) -> [u8; UNIQUE_ID_LEN] {
    let mut random = SplitMix64::new(transmit);
    let mut id = [0; UNIQUE_ID_LEN];
    for chunk in id.chunks_exact_mut(8) {
        chunk.copy_from_slice(&random.next_u64().to_be_bytes());
    }
    id
}
