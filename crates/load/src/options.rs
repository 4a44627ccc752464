//! What a run is asked to do, as flags or a configuration say it, before anything is found out.

use std::sync::Arc;
use std::time::Duration;

use horolog_record::{Engine as Kind, SearchKind, Spacing};
use horolog_stats::SearchConfig;
use horolog_sys::namespace::NetNs;
use horolog_sys::netlink::Prefix;
use horolog_time::Span;

use crate::beside::Manners;
use crate::capture::CaptureOptions;
use crate::course::Course;
use crate::limit::Limit;
use crate::mix::Part;
use crate::nts::{NtsOptions, Sessions};
use crate::offset::OffsetOptions;
use crate::page::PageOptions;
use crate::ptp::PtpPlan;
use crate::ramp::Ramp;
use crate::run::Surge;
use crate::tail::Additions;
use crate::target::{Family, Hints, TargetName};
use crate::watch::AskServer;

/// What to do with the target.
#[derive(Clone, PartialEq, Debug)]
pub enum Job {
    /// Rising rates.
    Ramp(Ramp),
    /// The highest rate within a loss goal.
    Search {
        /// How the goal is called in the result.
        kind: SearchKind,
        /// The goal and the way to it.
        config: SearchConfig,
    },
    /// Phases without a gap between them, counted in intervals.
    Course(Course),
    /// A part of this rate, a multiple of it, and the part again, as [`LoadOptions::surge`] says.
    Overload(f64),
}

impl Job {
    /// The same at this share of its rates.
    #[must_use]
    pub fn scaled(&self, share: f64) -> Self {
        match self {
            Self::Ramp(ramp) => {
                Self::Ramp(Ramp { min: ramp.min * share, max: ramp.max * share, ..*ramp })
            }
            Self::Search { kind, config } => {
                let (min_rate, max_rate) = (config.min_rate * share, config.max_rate * share);
                Self::Search { kind: *kind, config: SearchConfig { min_rate, max_rate, ..*config } }
            }
            Self::Course(course) => Self::Course(course.scaled(share)),
            Self::Overload(rate) => Self::Overload(rate * share),
        }
    }
}

/// A run as it is asked for. [`LoadOptions::new`] gives defaults to change where needed.
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct LoadOptions {
    /// What to load.
    pub target: TargetName,
    /// Which address of a name to take.
    pub family: Option<Family>,
    /// What the user knows about the way.
    pub hints: Hints,
    /// The user says that a public target is theirs.
    pub i_own_this_target: bool,
    /// The engine; `None` takes the best that works.
    pub engine: Option<Kind>,
    /// Where simulated clients come from; `None` finds a private network that is free.
    pub source_network: Option<Prefix>,
    /// Take sources from the whole network, scattered; none comes twice before all
    /// have come, in up to 2^27 requests of each thread.
    pub random_sources: bool,
    /// Clients; `None` takes what suits the engine.
    pub clients: Option<u32>,
    /// Requests per second of each client: `clients` are the most then, and fewer ask at low rates.
    pub rate_per_client: Option<f64>,
    /// How many times each client asks before the counting of a trial begins.
    pub warm_up: u32,
    /// Sending threads; `None` takes one for each core.
    pub threads: Option<usize>,
    /// NTP version of the requests, 1 to 4.
    pub version: u8,
    /// How requests are spaced.
    pub spacing: Spacing,
    /// How long a reply may take before it counts as late.
    pub reply_timeout: Duration,
    /// The target is no time server but a reflector, which sends requests back as they are: what
    /// the way to it can carry at most. Only the in-kernel engine knows such replies.
    pub echo: bool,
    /// Ask in interleaved mode (RFC 9769).
    pub interleaved: bool,
    /// Authenticate requests.
    pub nts: Option<NtsOptions>,
    /// Authenticate requests by sessions that are there already, instead of those of `nts`.
    pub sessions: Option<Arc<Sessions>>,
    /// Put these behind the header of every request.
    pub additions: Additions,
    /// Take offsets of the server's transmit timestamps.
    pub offset: Option<OffsetOptions>,
    /// Ask a PTP master instead of an NTP server.
    pub ptp: Option<PtpPlan>,
    /// Ask for several kinds of things at once; then `version`, `interleaved`, `nts`, `sessions`,
    /// `additions` and `ptp` say nothing. Empty for a run of one kind.
    pub mix: Vec<Part>,
    /// What to do.
    pub job: Job,
    /// Count each client apart, and say how evenly they are answered.
    pub fairness: bool,
    /// Clients that ask as they should, beside the load.
    pub well_behaved: Option<Manners>,
    /// How a server is asked for more than it takes, by [`Job::Overload`] or after a search at the
    /// rate that it found.
    pub surge: Option<Surge>,
    /// What the run is held against.
    pub limits: Vec<Limit>,
    /// The command line, for the record.
    pub command: Vec<String>,
    /// Namespaces without a name that the server may be in.
    pub namespaces: Vec<NetNs>,
    /// Asks the server for its own counters.
    pub ask_server: Option<AskServer>,
    /// The page of counters on the server's machine, which then tells all that is known of it.
    pub counters: Option<PageOptions>,
    /// Keep what was sent and received.
    pub capture: Option<CaptureOptions>,
}

impl LoadOptions {
    /// The length of the intervals of the courses that it has, where it has any.
    #[must_use]
    pub fn interval(&self) -> Option<Span> {
        let length = match &self.job {
            Job::Course(course) => Some(course.interval()),
            Job::Overload(_) => Some(self.surge.unwrap_or_default().interval),
            Job::Ramp(_) | Job::Search { .. } => self.surge.map(|surge| surge.interval),
        };
        length.map(|length| Span::from_ns(length.as_nanos() as i64))
    }

    /// A run with the usual settings.
    #[must_use]
    pub fn new(target: TargetName, job: Job) -> Self {
        Self {
            target,
            family: None,
            hints: Hints::default(),
            i_own_this_target: false,
            engine: None,
            source_network: None,
            random_sources: false,
            clients: None,
            rate_per_client: None,
            warm_up: 0,
            threads: None,
            version: 4,
            spacing: Spacing::Constant,
            reply_timeout: Duration::from_secs(1),
            echo: false,
            interleaved: false,
            nts: None,
            sessions: None,
            additions: Additions::default(),
            offset: None,
            ptp: None,
            mix: Vec::new(),
            job,
            fairness: false,
            well_behaved: None,
            surge: None,
            limits: Vec::new(),
            command: Vec::new(),
            namespaces: Vec::new(),
            ask_server: None,
            counters: None,
            capture: None,
        }
    }
}
