//! Compliant clients during a load: each has its own address and keeps to the poll interval,
//! through its own packets and counters. Compliant loss is the cost of a server's rate limits.
//!
//! The clients run on one thread, which owns their engine from the first trial to the last.

use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use horolog_record::{CompliantClients, Distribution, Spacing};
use horolog_sys::netlink::Prefix;

use crate::engine::packet::PacketEngine;
use crate::engine::{EngineError, LoadEngine};
use crate::fairness::ClientReplyCounts;
use crate::plan::{RunPlan, TrialPlan};
use crate::request_tracker::TrialCounts;

/// Options of the compliant clients.
#[derive(Clone, PartialEq, Debug)]
pub struct CompliantClientOptions {
    /// Number of clients.
    pub clients: u32,
    /// Time between the starts of two bursts of one client.
    pub interval: Duration,
    /// Requests in a burst, one after the other.
    pub burst: u32,
    /// Network of the clients; `None` takes a part of the load's network that it does not use.
    pub network: Option<Prefix>,
}

impl CompliantClientOptions {
    /// Returns the requests per second of all clients together.
    #[must_use]
    pub fn rate(&self) -> f64 {
        f64::from(self.clients) * f64::from(self.burst) / self.interval.as_secs_f64()
    }
}

/// Handle of the clients' thread.
pub(crate) struct CompliantClientGroup {
    options: CompliantClientOptions,
    plans: Sender<TrialPlan>,
    counts: Receiver<Result<TrialCounts, EngineError>>,
}

impl CompliantClientGroup {
    /// Opens their engine for a run.
    pub(crate) fn open(
        options: CompliantClientOptions,
        plan: RunPlan,
    ) -> Result<Self, EngineError> {
        let (plans, plan_receiver) = mpsc::channel::<TrialPlan>();
        let (count_sender, counts) = mpsc::channel();
        let work = move || {
            let mut engine = match PacketEngine::open(&plan) {
                Ok(engine) => engine,
                // The caller waits for it.
                Err(error) => return drop(count_sender.send(Err(error))),
            };
            let mut connected = count_sender.send(Ok(TrialCounts::default())).is_ok();
            // Until the run is over, and with it the other end of the channel.
            while connected && let Ok(trial) = plan_receiver.recv() {
                connected = count_sender
                    .send(engine.trial(&trial, &mut || ControlFlow::Continue(())))
                    .is_ok();
            }
        };
        thread::Builder::new()
            .name("well-behaved".to_owned())
            .spawn(work)
            .map_err(EngineError::system("start a thread"))?;
        let group = Self { options, plans, counts };
        group.take()?;
        Ok(group)
    }

    fn take(&self) -> Result<TrialCounts, EngineError> {
        let gone = |_| std::io::Error::other("thread ended unexpectedly");
        let action = "run compliant clients";
        self.counts.recv().map_err(gone).map_err(EngineError::system(action))?
    }

    /// Runs the clients during `during`, which lasts for `duration`.
    pub(crate) fn run_during<T>(
        &self,
        duration: Duration,
        during: impl FnOnce() -> Result<T, EngineError>,
    ) -> Result<(T, CompliantClients), EngineError> {
        let plan = TrialPlan {
            rate: self.options.rate(),
            duration,
            spacing: Spacing::Constant,
            clients: self.options.clients,
            nts: false,
            profile: None,
            parts: Vec::new(),
        };
        // A thread that has ended is detected when its counts are collected.
        let _ = self.plans.send(plan);
        let result = during();
        let counts = self.take()?;
        Ok((result?, self.record(&counts)))
    }

    fn record(&self, counts: &TrialCounts) -> CompliantClients {
        let active = || counts.clients.iter().filter(|client| client.count_request > 0);
        let is_affected = |client: &&ClientReplyCounts| client.answered < client.count_request;
        CompliantClients {
            clients: u64::from(self.options.clients),
            interval_s: self.options.interval.as_secs_f64(),
            burst: self.options.burst,
            sent: counts.sent,
            received: counts.received,
            lost: counts.lost(),
            invalid: counts.invalid.iter().sum(),
            clients_active: active().count() as u64,
            clients_affected: active().filter(is_affected).count() as u64,
            rtt_ns: Distribution::of_recorder(&counts.rtt),
        }
    }
}
