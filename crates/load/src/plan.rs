//! Plan of a run and of each of its trials, with everything resolved and checked: the input of an
//! engine. Nothing here is optional or by name any more.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use horolog_record::{RequestMode, Spacing};
use horolog_sys::netlink::Prefix;
use horolog_time::Span;

use crate::clients::{LaneClients, SourceNetwork};
use crate::load_profile::LoadProfile;
use crate::nts::Sessions;
use crate::offset::OffsetOptions;
use crate::ptp::{self, PtpPlan};
use crate::target::Route;
use crate::token::TokenCodec;
use crate::trailer::TrailerOptions;
use crate::verify::ExpectedReplies;

/// One kind of requests in a mix.
#[derive(Clone, PartialEq, Debug)]
pub struct PartPlan {
    /// Name of the part.
    pub name: String,
    /// Mode of its requests.
    pub mode: RequestMode,
    /// Share of the rate, above 0 and up to 1.
    pub share: f64,
    /// Number of its clients, at least as many as its lanes.
    pub clients: u32,
    /// True if its requests, or a share of them, are authenticated.
    pub nts: bool,
}

/// Replies that are withheld from this host's own network stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuardPlan {
    /// Network of the clients.
    pub network: Prefix,
    /// Source ports of the replies.
    pub ports: RangeInclusive<u16>,
}

/// One run against one target.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct RunPlan {
    /// Target of the requests.
    pub target: SocketAddr,
    /// Route to the target.
    pub route: Route,
    /// NTP version of the requests, 1 to 4.
    pub version: u8,
    /// Sending threads, at least 1; the in-kernel engine uses as many of them as a rate requires.
    pub lanes: usize,
    /// Core of each lane in turn; empty if threads are not pinned.
    pub cores: Vec<usize>,
    /// Network of simulated clients; `None` for an engine that has only real ones.
    pub network: Option<SourceNetwork>,
    /// Clients of every trial, all lanes together; with random sources the number of possible ones.
    pub clients: u32,
    /// Sources are taken from the whole network, scattered; none repeats before all have been used,
    /// in up to 2^27 requests of each lane.
    pub random_sources: bool,
    /// Codec that distinguishes the run's own requests from others.
    pub token: TokenCodec,
    /// Reply timeout.
    pub reply_timeout: Duration,
    /// The target is not a time server but returns requests unchanged.
    pub echo: bool,
    /// True if requests are in interleaved mode.
    pub interleaved: bool,
    /// True if each client is counted separately.
    pub fairness: bool,
    /// Length of the intervals of its profiles, if it has any.
    pub interval: Option<Span>,
    /// Number of the first lane, which determines its port, its core and in PTP the number of its
    /// port identity: other engines may send at the same time.
    pub first_lane: usize,
    /// True if concurrent engines have the same ports, so replies are distinguished by the
    /// clients' network.
    pub shares_ports: bool,
    /// Replies that this run keeps from the network stack; `None` if that is left to another engine
    /// or to the stack, which has no such addresses.
    pub guard: Option<GuardPlan>,
    /// Addresses of concurrent engines, whose replies are not this run's.
    pub apart: Option<SourceNetwork>,
    /// Consecutive requests of one simulated client.
    pub in_a_row: u32,
    /// True if a capture must record the packets sent, so they must pass the queues.
    pub tapped: bool,
    /// NTS sessions that authenticate requests.
    pub sessions: Option<Arc<Sessions>>,
    /// Trailer of the requests that are not authenticated.
    pub additions: TrailerOptions,
    /// Options for the offsets of the server's transmit timestamps.
    pub offset: Option<OffsetOptions>,
    /// Requests to a PTP master instead of an NTP server: then `version`, `echo`, `interleaved` and
    /// `sessions` have no effect.
    pub ptp: Option<PtpPlan>,
    /// Kinds of requests of a mix, each of which has its own plan; none in other runs.
    pub parts: Vec<PartPlan>,
}

impl RunPlan {
    /// Returns the mode of the requests.
    #[must_use]
    pub fn mode(&self) -> RequestMode {
        if !self.parts.is_empty() {
            RequestMode::Mix
        } else if let Some(ptp) = self.ptp {
            ptp.mode()
        } else if self.echo {
            RequestMode::Echo
        } else if self.sessions.is_some() {
            RequestMode::NtpNts
        } else if self.interleaved {
            RequestMode::NtpInterleaved
        } else {
            RequestMode::NtpBasic
        }
    }

    /// Returns the values that replies are verified against.
    #[must_use]
    pub const fn expected(&self) -> ExpectedReplies {
        ExpectedReplies {
            token: self.token,
            version: self.version,
            interleaved: self.interleaved,
            extended: self.sessions.is_some() || !self.additions.is_empty(),
        }
    }

    /// Returns the values that PTP messages to lane `lane` of `lanes` are verified against, in a
    /// trial with `clients` clients; `None` in a run with NTP requests.
    #[must_use]
    pub fn expected_ptp(
        &self,
        clients: u32,
        (lane, lanes): (usize, usize),
    ) -> Option<ptp::ExpectedPtpMessages> {
        let plan = self.ptp?;
        let clients = if self.random_sources { 0 } else { clients };
        let clients = if plan.has_addresses() { clients } else { plan.clients_max().unwrap_or(0) };
        let (lane, lanes) = (self.first_lane + lane, self.first_lane + lanes);
        let master = self.target.ip();
        Some(ptp::ExpectedPtpMessages { plan, token: self.token, lane, lanes, clients, master })
    }

    /// Returns the clients of lane `lane` of `lanes` in a trial with `clients` of them, each with
    /// `run` requests in a row.
    #[must_use]
    pub fn lane_clients(
        &self,
        clients: u32,
        (lane, lanes): (usize, usize),
        run: u32,
    ) -> LaneClients {
        match self.network {
            Some(network) if self.random_sources => {
                LaneClients::random(network.room(), self.token.key(), lane, lanes)
            }
            _ => LaneClients::in_turn(clients, lane, lanes, run),
        }
    }

    /// Returns the core that lane `lane` is pinned to.
    #[must_use]
    pub fn core(&self, lane: usize) -> Option<usize> {
        let turn = self.first_lane + lane;
        (!self.cores.is_empty()).then(|| self.cores[turn % self.cores.len()])
    }
}

/// A constant rate for some time, or a load profile.
#[derive(Clone, PartialEq, Debug)]
pub struct TrialPlan {
    /// Requests per second, all lanes together; the highest rate of a profile.
    pub rate: f64,
    /// Time for which requests are sent.
    pub duration: Duration,
    /// Spacing of the requests.
    pub spacing: Spacing,
    /// Number of clients, at least as many as lanes.
    pub clients: u32,
    /// True if requests, or a share of them, are authenticated.
    pub nts: bool,
    /// Changes of the rate, and the intervals that are counted separately; `None` for one rate.
    pub profile: Option<Arc<LoadProfile>>,
    /// Kinds of requests of a mix; none in other runs.
    pub parts: Vec<PartPlan>,
}

impl TrialPlan {
    /// Returns the plan of one kind of requests of a mix.
    #[must_use]
    pub fn of_part(&self, part: &PartPlan) -> Self {
        Self {
            rate: self.rate * part.share,
            clients: part.clients,
            nts: part.nts,
            profile: self.profile.as_ref().map(|profile| Arc::new(profile.scaled(part.share))),
            parts: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns the length of the intervals that are counted separately.
    #[must_use]
    pub fn interval(&self) -> Option<Span> {
        let ns = self.profile.as_ref()?.interval().as_nanos();
        Some(Span::from_ns(ns as i64))
    }
}
