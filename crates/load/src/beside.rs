//! Well-behaved clients beside the load: each has an address of its own and asks as seldom as it
//! should, through packets and books of its own. What a server's limits do to them is what matters
//! about these limits.
//!
//! They have a thread to themselves, which owns their engine from the first trial to the last.

use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use horolog_record::{Distribution, Spacing, WellBehaved};
use horolog_sys::netlink::Prefix;

use crate::account::TrialCounts;
use crate::engine::packet::PacketEngine;
use crate::engine::{Engine, EngineError};
use crate::fairness::Asked;
use crate::plan::{RunPlan, TrialPlan};

/// How well-behaved clients behave.
#[derive(Clone, PartialEq, Debug)]
pub struct Manners {
    /// How many there are.
    pub clients: u32,
    /// Between the beginnings of two bursts of one client.
    pub interval: Duration,
    /// Requests in a burst, one after the other.
    pub burst: u32,
    /// Where they come from; `None` takes a part of the load's network that it does not use.
    pub network: Option<Prefix>,
}

impl Manners {
    /// Requests per second of all of them.
    #[must_use]
    pub fn rate(&self) -> f64 {
        f64::from(self.clients) * f64::from(self.burst) / self.interval.as_secs_f64()
    }
}

/// The clients' thread.
pub(crate) struct Beside {
    manners: Manners,
    plans: Sender<TrialPlan>,
    counts: Receiver<Result<TrialCounts, EngineError>>,
}

impl Beside {
    /// Opens their engine for a run.
    pub(crate) fn open(manners: Manners, plan: RunPlan) -> Result<Self, EngineError> {
        let (plans, asked) = mpsc::channel::<TrialPlan>();
        let (told, counts) = mpsc::channel();
        let work = move || {
            let mut engine = match PacketEngine::open(&plan) {
                Ok(engine) => engine,
                // Whoever asked is waiting for it.
                Err(error) => return drop(told.send(Err(error))),
            };
            let mut heard = told.send(Ok(TrialCounts::default())).is_ok();
            // Until the run is over, and with it the other end.
            while heard && let Ok(trial) = asked.recv() {
                heard = told.send(engine.trial(&trial, &mut || ControlFlow::Continue(()))).is_ok();
            }
        };
        thread::Builder::new()
            .name("well-behaved".to_owned())
            .spawn(work)
            .map_err(EngineError::system("start a thread"))?;
        let beside = Self { manners, plans, counts };
        beside.take()?;
        Ok(beside)
    }

    fn take(&self) -> Result<TrialCounts, EngineError> {
        let gone = |_| std::io::Error::other("its thread is gone");
        let action = "let well-behaved clients ask";
        self.counts.recv().map_err(gone).map_err(EngineError::system(action))?
    }

    /// Lets them ask during `during`, which lasts for `duration`.
    pub(crate) fn ask<T>(
        &self,
        duration: Duration,
        during: impl FnOnce() -> Result<T, EngineError>,
    ) -> Result<(T, WellBehaved), EngineError> {
        let plan = TrialPlan {
            rate: self.manners.rate(),
            duration,
            spacing: Spacing::Constant,
            clients: self.manners.clients,
            nts: false,
            course: None,
            parts: Vec::new(),
        };
        // A thread that is gone is found when its counts are taken.
        let _ = self.plans.send(plan);
        let result = during();
        let counts = self.take()?;
        Ok((result?, self.record(&counts)))
    }

    fn record(&self, counts: &TrialCounts) -> WellBehaved {
        let asking = || counts.clients.iter().filter(|client| client.asked > 0);
        let hurt = |client: &&Asked| client.answered < client.asked;
        WellBehaved {
            clients: u64::from(self.manners.clients),
            interval_s: self.manners.interval.as_secs_f64(),
            burst: self.manners.burst,
            sent: counts.sent,
            received: counts.received,
            lost: counts.lost(),
            invalid: counts.invalid.iter().sum(),
            clients_asking: asking().count() as u64,
            clients_hurt: asking().filter(hurt).count() as u64,
            rtt_ns: Distribution::of_recorder(&counts.rtt),
        }
    }
}
