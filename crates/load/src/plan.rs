//! Plans of a run and of its trials, the input of an engine: all names are resolved and all values
//! checked.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use horolog_record::{RequestMode, RequestSpacing};
use horolog_time::Span;
use horolog_wire::prefix::Prefix;

use crate::clients::{LaneClients, SimulatedClientNetwork};
use crate::load_profile::LoadProfile;
use crate::offset::ServerOffsetOptions;
use crate::request_kind::RequestKind;
use crate::target::Route;
use crate::token::RequestTokenCodec;

/// Plan of one part of a mix.
#[derive(Clone, PartialEq, Debug)]
pub struct MixPartPlan {
    /// Name of the part.
    pub name: String,
    /// Mode of its requests.
    pub mode: RequestMode,
    /// Share of the rate, above 0 and up to 1.
    pub share: f64,
    /// Number of its clients, at least as many as its lanes.
    pub clients: u32,
}

/// Replies that a BPF program drops before this host's network stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplyDropPlan {
    /// Network of the clients.
    pub network: Prefix,
    /// Source ports of the replies.
    pub ports: RangeInclusive<u16>,
}

/// Plan of one kind of requests of a run.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct RunPlan {
    /// Target of the requests.
    pub target: SocketAddr,
    /// Route to the target.
    pub route: Route,
    /// Kind of the requests, with existing NTS sessions if it requires any.
    pub requests: RequestKind,
    /// Number of sending threads, at least 1; the XDP engine uses as many of them as a rate
    /// requires.
    pub lanes: usize,
    /// Core of each lane in turn; empty if threads are not pinned.
    pub cores: Vec<usize>,
    /// Network of simulated clients; `None` for real clients.
    pub network: Option<SimulatedClientNetwork>,
    /// Number of clients in every trial, over all lanes; with random sources, the number of
    /// addresses.
    pub clients: u32,
    /// Sources are taken from the whole network, scattered; none repeats before all have been used,
    /// in up to 2^27 requests of each lane.
    pub random_sources: bool,
    /// Codec of the run's request tokens.
    pub token: RequestTokenCodec,
    /// Reply timeout.
    pub reply_timeout: Span,
    /// True if each client is counted separately.
    pub fairness: bool,
    /// Length of the intervals of the load profile or of the overload test; `None` if the run has
    /// neither.
    pub interval: Option<Span>,
    /// Number of the first lane, greater than 0 if other engines send at the same time. It offsets
    /// the lanes' source ports, cores and PTP port numbers.
    pub first_lane: usize,
    /// True if concurrent engines use the same ports, so that replies are assigned by the clients'
    /// network.
    pub shares_ports: bool,
    /// Replies that this run keeps from the network stack; `None` if another engine does so, or if
    /// the stack drops them itself because it has no such addresses.
    pub reply_drop: Option<ReplyDropPlan>,
    /// Network of a concurrent engine's clients, whose replies do not belong to this run.
    pub excluded_network: Option<SimulatedClientNetwork>,
    /// Number of consecutive requests of one simulated client.
    pub consecutive_requests: u32,
    /// True if a capture must record the packets sent, so they must pass the queues.
    pub is_captured: bool,
    /// Offset options; `None` if no offsets are measured.
    pub offset: Option<ServerOffsetOptions>,
}

impl RunPlan {
    /// Returns the clients of lane `lane` of `lanes` in a trial with `clients` clients, each of
    /// which sends `consecutive_requests` requests in a row.
    #[must_use]
    pub fn lane_clients(
        &self,
        clients: u32,
        (lane, lanes): (usize, usize),
        consecutive_requests: u32,
    ) -> LaneClients {
        match self.network {
            Some(network) if self.random_sources => {
                LaneClients::random(network.host_count(), self.token.key(), lane, lanes)
            }
            _ => LaneClients::in_turn(clients, lane, lanes, consecutive_requests),
        }
    }

    /// Returns the core of lane `lane`; `None` if threads are not pinned.
    #[must_use]
    pub fn core(&self, lane: usize) -> Option<usize> {
        let global_lane = self.first_lane + lane;
        (!self.cores.is_empty()).then(|| self.cores[global_lane % self.cores.len()])
    }
}

/// Plan of a trial: a constant rate or a load profile, for a duration.
#[derive(Clone, PartialEq, Debug)]
pub struct TrialPlan {
    /// Requests per second, all lanes together; the highest rate of a profile.
    pub rate: f64,
    /// Time for which requests are sent.
    pub duration: Duration,
    /// Spacing of the requests.
    pub spacing: RequestSpacing,
    /// Number of clients, at least as many as lanes.
    pub clients: u32,
    /// True if requests, or a share of them, are authenticated.
    pub nts: bool,
    /// Load profile with intervals; `None` for a constant rate.
    pub profile: Option<Arc<LoadProfile>>,
    /// Parts of a mix; empty in other runs.
    pub parts: Vec<MixPartPlan>,
}

impl TrialPlan {
    /// Returns the plan of a trial of one kind of requests, evenly spaced and not authenticated.
    #[must_use]
    pub const fn constant(rate: f64, duration: Duration, clients: u32) -> Self {
        let spacing = RequestSpacing::Constant;
        Self { rate, duration, spacing, clients, nts: false, profile: None, parts: Vec::new() }
    }

    /// Returns the plan of each kind of requests; the plan itself if there is one kind.
    #[must_use]
    pub fn part_plans(&self) -> Vec<Self> {
        if self.parts.is_empty() {
            return vec![self.clone()];
        }
        self.parts.iter().map(|part| self.part_plan(part)).collect()
    }

    /// Returns the plan of one kind of requests of a mix.
    #[must_use]
    pub fn part_plan(&self, part: &MixPartPlan) -> Self {
        Self {
            rate: self.rate * part.share,
            clients: part.clients,
            nts: part.mode == RequestMode::NtpNts,
            profile: self.profile.as_ref().map(|profile| Arc::new(profile.scaled(part.share))),
            parts: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns the length of the intervals; `None` without a load profile.
    #[must_use]
    pub fn interval(&self) -> Option<Span> {
        let ns = self.profile.as_ref()?.interval().as_nanos();
        Some(Span::from_ns(ns as i64))
    }
}
