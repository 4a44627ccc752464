//! Options of a run, as given by flags or a configuration, before names are resolved.

use std::time::Duration;

use horolog_record::{CapacitySearchGoal, LoadEngineKind as Kind, RequestSpacing};
use horolog_stats::SearchConfig;
use horolog_sys::namespace::NetNs;
use horolog_time::Span;
use horolog_wire::prefix::Prefix;

use crate::capture::CaptureOptions;
use crate::compliant_clients::CompliantClientOptions;
use crate::limit::LoadMetricLimit;
use crate::load_profile::LoadProfile;
use crate::loss_attribution_counters::ServerRequestCountsFn;
use crate::mix::RequestMix;
use crate::offset::ServerOffsetOptions;
use crate::ramp::Ramp;
use crate::remote_counters::RemoteCounterOptions;
use crate::run::OverloadTestOptions;
use crate::target::{AddressFamily, RouteHints, TargetName};

/// Sequence of rates and trials that a run goes through.
#[derive(Clone, PartialEq, Debug)]
pub enum LoadProcedure {
    /// Trials at rising rates.
    Ramp(Ramp),
    /// Search for the highest rate within a loss goal.
    Search {
        /// Name of the goal in the result.
        kind: CapacitySearchGoal,
        /// Goal and parameters of the search.
        config: SearchConfig,
    },
    /// Load profile: phases without gaps, counted in intervals.
    Profile(LoadProfile),
    /// Overload test with this rate as its reference: a fraction of it, a multiple of it, and the
    /// fraction again, as set in [`LoadOptions::overload_test`].
    Overload(f64),
}

impl LoadProcedure {
    /// Returns the job with all rates multiplied by `share`.
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
            Self::Profile(profile) => Self::Profile(profile.scaled(share)),
            Self::Overload(rate) => Self::Overload(rate * share),
        }
    }
}

/// Options of a run. [`LoadOptions::new`] sets defaults.
pub struct LoadOptions {
    /// Target of the load.
    pub target: TargetName,
    /// Requests to send.
    pub requests: RequestMix,
    /// Address family to use for a name.
    pub family: Option<AddressFamily>,
    /// The user's hints about the route.
    pub hints: RouteHints,
    /// The user declares a public target as their own.
    pub i_own_this_target: bool,
    /// Engine; `None` takes the best that works.
    pub engine: Option<Kind>,
    /// Network of simulated clients; `None` finds a free private network.
    pub source_network: Option<Prefix>,
    /// Take the source of each request from the whole network, in scattered order. No source
    /// repeats before all have been used, within 2^27 requests of each thread.
    pub random_sources: bool,
    /// Number of clients; `None` takes the engine's default.
    pub clients: Option<u32>,
    /// Rate of each client in requests per second. Then `clients` is the largest number, and fewer
    /// are active at low rates.
    pub rate_per_client: Option<f64>,
    /// Number of requests of each client that are sent before a trial and not counted.
    pub warm_up: u32,
    /// Number of sending threads; `None` uses one per core.
    pub threads: Option<usize>,
    /// Spacing of the requests.
    pub spacing: RequestSpacing,
    /// Time after which a reply counts as late.
    pub reply_timeout: Duration,
    /// Measure offsets of the server's transmit timestamps.
    pub offset: Option<ServerOffsetOptions>,
    /// Job of the run.
    pub job: LoadProcedure,
    /// Count each client separately, and report the evenness of the replies.
    pub fairness: bool,
    /// Compliant clients during the load.
    pub compliant_clients: Option<CompliantClientOptions>,
    /// Overload of the server, by [`LoadProcedure::Overload`] or after a search at the rate that it
    /// found.
    pub overload_test: Option<OverloadTestOptions>,
    /// Limits of the run.
    pub limits: Vec<LoadMetricLimit>,
    /// Command line, for the record.
    pub command: Vec<String>,
    /// Unnamed network namespaces in which the server may run.
    pub namespaces: Vec<NetNs>,
    /// Source of the server's own counters.
    pub counter_source: Option<ServerRequestCountsFn>,
    /// Counter snapshot of the server's host, as the only source of the server's counters.
    pub remote_counters: Option<RemoteCounterOptions>,
    /// Capture of the packets sent and received.
    pub capture: Option<CaptureOptions>,
}

impl LoadOptions {
    /// Returns the length of the intervals of the load profile or of the overload test; `None` if
    /// the run has neither.
    #[must_use]
    pub fn interval(&self) -> Option<Span> {
        let length = match &self.job {
            LoadProcedure::Profile(profile) => Some(profile.interval()),
            LoadProcedure::Overload(_) => Some(self.overload_test.unwrap_or_default().interval),
            LoadProcedure::Ramp(_) | LoadProcedure::Search { .. } => {
                self.overload_test.map(|surge| surge.interval)
            }
        };
        length.map(|length| Span::from_ns(length.as_nanos() as i64))
    }

    /// Returns a run with the default settings.
    #[must_use]
    pub fn new(target: TargetName, job: LoadProcedure) -> Self {
        Self {
            target,
            requests: RequestMix::default(),
            family: None,
            hints: RouteHints::default(),
            i_own_this_target: false,
            engine: None,
            source_network: None,
            random_sources: false,
            clients: None,
            rate_per_client: None,
            warm_up: 0,
            threads: None,
            spacing: RequestSpacing::Constant,
            reply_timeout: Duration::from_secs(1),
            offset: None,
            job,
            fairness: false,
            compliant_clients: None,
            overload_test: None,
            limits: Vec::new(),
            command: Vec::new(),
            namespaces: Vec::new(),
            counter_source: None,
            remote_counters: None,
            capture: None,
        }
    }
}
