//! Compliant clients during a load: each has an address of its own and keeps to the poll interval.
//! They have their own packets and counters. Their loss shows what a server's rate limiting does to
//! clients that behave correctly.
//!
//! The clients run on one thread, which owns their engine from the first trial to the last.

use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use horolog_record::{CompliantClientsResult, Distribution};
use horolog_wire::prefix::Prefix;

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
    /// Time from the start of one burst of a client to the start of its next.
    pub interval: Duration,
    /// Requests in a burst of a client, at least 1.
    pub burst: u32,
    /// Network of the clients; `None` selects an unused subnet of the load's network.
    pub network: Option<Prefix>,
}

impl CompliantClientOptions {
    /// Returns the requests per second of all clients together.
    #[must_use]
    pub fn rate(&self) -> f64 {
        f64::from(self.clients) * f64::from(self.burst) / self.interval.as_secs_f64()
    }
}

/// Handle of the thread that runs the compliant clients.
pub(crate) struct RunningCompliantClients {
    options: CompliantClientOptions,
    plans: Sender<TrialPlan>,
    counts: Receiver<Result<TrialCounts, EngineError>>,
}

impl RunningCompliantClients {
    /// Starts the thread and opens its engine for a run.
    pub(crate) fn open(
        options: CompliantClientOptions,
        plan: RunPlan,
    ) -> Result<Self, EngineError> {
        let (plans, plan_receiver) = mpsc::channel::<TrialPlan>();
        let (count_sender, counts) = mpsc::channel();
        let run_trials = move || {
            let mut engine = match PacketEngine::open(&plan) {
                Ok(engine) => engine,
                // `open` waits for this first message.
                Err(error) => return drop(count_sender.send(Err(error))),
            };
            let mut connected = count_sender.send(Ok(TrialCounts::default())).is_ok();
            // Runs trials until the handle is dropped, which closes the channel.
            while connected && let Ok(trial) = plan_receiver.recv() {
                connected = count_sender
                    .send(engine.run_trial(&trial, &mut || ControlFlow::Continue(())))
                    .is_ok();
            }
        };
        thread::Builder::new()
            .name("compliant".to_owned())
            .spawn(run_trials)
            .map_err(EngineError::system("start a thread"))?;
        let handle = Self { options, plans, counts };
        handle.receive_counts()?;
        Ok(handle)
    }

    fn receive_counts(&self) -> Result<TrialCounts, EngineError> {
        let thread_ended = |_| std::io::Error::other("thread ended unexpectedly");
        let action = "run compliant clients";
        self.counts.recv().map_err(thread_ended).map_err(EngineError::system(action))?
    }

    /// Runs the clients for `duration` while `load` runs. Returns the result of `load` and the
    /// record of the clients.
    pub(crate) fn run_during<T>(
        &self,
        duration: Duration,
        load: impl FnOnce() -> Result<T, EngineError>,
    ) -> Result<(T, CompliantClientsResult), EngineError> {
        let plan = TrialPlan::constant(self.options.rate(), duration, self.options.clients);
        // If the thread has ended, the send fails here and the receipt of its counts reports it.
        let _ = self.plans.send(plan);
        let result = load();
        let counts = self.receive_counts()?;
        Ok((result?, self.to_record(&counts)))
    }

    fn to_record(&self, counts: &TrialCounts) -> CompliantClientsResult {
        let active = || counts.clients.iter().filter(|client| client.requests > 0);
        let is_affected = |client: &&ClientReplyCounts| client.answered < client.requests;
        CompliantClientsResult {
            clients: u64::from(self.options.clients),
            interval_s: self.options.interval.as_secs_f64(),
            burst: self.options.burst,
            sent: counts.sent,
            received: counts.received,
            lost: counts.lost(),
            invalid: counts.invalid.iter().sum(),
            clients_active: active().count() as u64,
            clients_affected: active().filter(is_affected).count() as u64,
            rtt_ns: Distribution::from_histogram(&counts.rtt),
        }
    }
}
