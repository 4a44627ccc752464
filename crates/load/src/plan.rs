//! What a run and each of its trials are to do, with everything found out and checked: what an
//! engine is built from. Nothing here is optional or by name any more.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use horolog_record::{Mode, Spacing};
use horolog_sys::netlink::Prefix;
use horolog_time::Span;

use crate::clients::{LaneClients, SourceNetwork};
use crate::course::Course;
use crate::nts::Sessions;
use crate::offset::OffsetOptions;
use crate::ptp::{self, PtpPlan};
use crate::tail::Additions;
use crate::target::Route;
use crate::token::Token;
use crate::verify::Expected;

/// One kind of requests in a mix.
#[derive(Clone, PartialEq, Debug)]
pub struct PartPlan {
    /// What it is called.
    pub name: String,
    /// What it asks.
    pub mode: Mode,
    /// Its share of the rate, above 0 and up to 1.
    pub share: f64,
    /// Its clients, at least as many as its lanes.
    pub clients: u32,
    /// Whether its requests, or a share of them, are authenticated.
    pub nts: bool,
}

/// Which replies are kept from this host's own network stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuardPlan {
    /// The network of the clients.
    pub network: Prefix,
    /// The ports that replies come from.
    pub ports: RangeInclusive<u16>,
}

/// One run against one target.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct RunPlan {
    /// Where requests go.
    pub target: SocketAddr,
    /// The way there.
    pub route: Route,
    /// NTP version of the requests, 1 to 4.
    pub version: u8,
    /// Sending threads, at least 1; the in-kernel engine uses as many of them as a rate takes.
    pub lanes: usize,
    /// The core of each lane in turn; empty where threads are not to be pinned.
    pub cores: Vec<usize>,
    /// Where simulated clients come from; `None` for an engine that has only real ones.
    pub network: Option<SourceNetwork>,
    /// Clients of every trial, all lanes together; with random sources how many there can be.
    pub clients: u32,
    /// Sources are taken from the whole network, scattered; none comes twice before all
    /// have come, in up to 2^27 requests of each lane.
    pub random_sources: bool,
    /// Tells the run's own questions from others.
    pub token: Token,
    /// How long a reply may take.
    pub reply_timeout: Duration,
    /// The target is no time server but sends requests back as they are.
    pub echo: bool,
    /// Requests are in interleaved mode.
    pub interleaved: bool,
    /// Each client is counted apart.
    pub fairness: bool,
    /// The length of the intervals of its courses, where it has any.
    pub interval: Option<Span>,
    /// The number of the first lane, from which its port, its core and in PTP the number of its
    /// port identity follow: others may send beside this run.
    pub first_lane: usize,
    /// Others beside this run have the same ports, so replies are told apart by the clients'
    /// network.
    pub shares_ports: bool,
    /// Which replies this run keeps from the network stack; `None` where that
    /// is left to another one or to the stack, which has no such addresses.
    pub guard: Option<GuardPlan>,
    /// The addresses of others that ask beside this run, whose replies are not this run's.
    pub apart: Option<SourceNetwork>,
    /// Requests of one simulated client in a row.
    pub in_a_row: u32,
    /// A tap has to see what is sent, so it goes through the queues.
    pub tapped: bool,
    /// What requests are authenticated with by NTS.
    pub sessions: Option<Arc<Sessions>>,
    /// What follows the header of requests that are not.
    pub additions: Additions,
    /// How offsets of the server's transmit timestamps are taken.
    pub offset: Option<OffsetOptions>,
    /// Asks a PTP master instead of an NTP server: then `version`, `echo`, `interleaved` and
    /// `sessions` say nothing.
    pub ptp: Option<PtpPlan>,
    /// The kinds of requests of a mix, each of which has a plan of its own; none in other runs.
    pub parts: Vec<PartPlan>,
}

impl RunPlan {
    /// What is asked of the target.
    #[must_use]
    pub fn mode(&self) -> Mode {
        if !self.parts.is_empty() {
            Mode::Mix
        } else if let Some(ptp) = self.ptp {
            ptp.mode()
        } else if self.echo {
            Mode::Echo
        } else if self.sessions.is_some() {
            Mode::NtpNts
        } else if self.interleaved {
            Mode::NtpInterleaved
        } else {
            Mode::NtpBasic
        }
    }

    /// What replies are held against.
    #[must_use]
    pub const fn expected(&self) -> Expected {
        Expected {
            token: self.token,
            version: self.version,
            interleaved: self.interleaved,
            extended: self.sessions.is_some() || !self.additions.is_empty(),
        }
    }

    /// What PTP messages to lane `lane` of `lanes` are held against, in a trial with `clients`
    /// clients; `None` in a run that asks for NTP.
    #[must_use]
    pub fn expected_ptp(
        &self,
        clients: u32,
        (lane, lanes): (usize, usize),
    ) -> Option<ptp::Expected> {
        let plan = self.ptp?;
        let clients = if self.random_sources { 0 } else { clients };
        let clients = if plan.has_addresses() { clients } else { plan.clients_max().unwrap_or(0) };
        let (lane, lanes) = (self.first_lane + lane, self.first_lane + lanes);
        let master = self.target.ip();
        Some(ptp::Expected { plan, token: self.token, lane, lanes, clients, master })
    }

    /// The clients of lane `lane` of `lanes` in a trial with `clients` of them, each with `run`
    /// requests in a row.
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

    /// The core that lane `lane` is to be pinned to.
    #[must_use]
    pub fn core(&self, lane: usize) -> Option<usize> {
        let turn = self.first_lane + lane;
        (!self.cores.is_empty()).then(|| self.cores[turn % self.cores.len()])
    }
}

/// One rate, held for some time, or a course of several.
#[derive(Clone, PartialEq, Debug)]
pub struct TrialPlan {
    /// Requests per second, all lanes together; the highest rate of a course.
    pub rate: f64,
    /// How long requests are sent.
    pub duration: Duration,
    /// How they are spaced.
    pub spacing: Spacing,
    /// Clients, at least as many as lanes.
    pub clients: u32,
    /// Whether requests, or a share of them, are authenticated.
    pub nts: bool,
    /// How the rate changes, and the intervals that are counted apart; `None` for one rate.
    pub course: Option<Arc<Course>>,
    /// The kinds of requests of a mix; none in other runs.
    pub parts: Vec<PartPlan>,
}

impl TrialPlan {
    /// What one kind of requests of a mix has of it.
    #[must_use]
    pub fn of_part(&self, part: &PartPlan) -> Self {
        Self {
            rate: self.rate * part.share,
            clients: part.clients,
            nts: part.nts,
            course: self.course.as_ref().map(|course| Arc::new(course.scaled(part.share))),
            parts: Vec::new(),
            ..self.clone()
        }
    }

    /// The length of the intervals that are counted apart.
    #[must_use]
    pub fn interval(&self) -> Option<Span> {
        let ns = self.course.as_ref()?.interval().as_nanos();
        Some(Span::from_ns(ns as i64))
    }
}
