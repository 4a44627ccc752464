//! How a controller waits: it reads what is told, looks for agents that are gone, and lives through
//! a broker that is gone for a while, whose absence counts against nobody's time.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::clocks::Answer;
use super::conduct::Controller;
use super::ledger::Heard;
use super::run::CampaignError;
use super::step::Step;
use crate::AgentName;
use crate::nats::{NatsError, Store};
use crate::order::News;

/// How often agents are looked at.
const PRESENCE_INTERVAL: Duration = Duration::from_secs(2);
pub(super) const RETRY: Duration = Duration::from_millis(250);

/// How waiting ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waited {
    Done,
    Late,
    Stopped,
}

impl Controller<'_> {
    /// Reads until something is so, at most for this time, in which the broker's absence does not
    /// count.
    pub(super) async fn wait(
        &mut self,
        patience: Duration,
        is_done: impl Fn(&Self) -> bool,
    ) -> Result<Waited, CampaignError> {
        let mut left = patience;
        loop {
            let took = self.turn().await?;
            if is_done(self) {
                return Ok(Waited::Done);
            }
            if (self.flow)().is_break() {
                return Ok(Waited::Stopped);
            }
            let Some(rest) = left.checked_sub(took) else { return Ok(Waited::Late) };
            left = rest;
        }
    }

    /// Reads until all that is to come has come, at most for this time, whoever wants it to stop.
    /// Agents that are gone, and not yet for as long as they may be, are waited for longer.
    pub(super) async fn wait_for_all(&mut self, patience: Duration) -> Result<(), CampaignError> {
        let mut left = patience;
        while !self.is_all_told() {
            let rest = left.checked_sub(self.turn().await?);
            if rest.is_none() && (!self.is_somebody_away() || (self.flow)().is_break()) {
                break;
            }
            left = rest.unwrap_or_default();
        }
        Ok(())
    }

    /// Reads what there is, and waits a little for more. Gives how long that took, or nothing where
    /// the broker was gone.
    async fn turn(&mut self) -> Result<Duration, CampaignError> {
        let began = Instant::now();
        let read = self.reader.read(&self.store, &self.id).await;
        let reports = match read {
            Ok(reports) => reports,
            Err(error) => {
                self.is_gone(error).await?;
                return Ok(Duration::ZERO);
            }
        };
        self.gone_since = None;
        self.has_read_all = reports.is_empty();
        for (agent, report) in reports {
            let heard = self.ledger.take(&agent, report);
            self.note_clock(&heard);
            self.tell_of(&heard);
        }
        self.look_for_the_lost(began).await;
        if !self.has_read_all {
            return Ok(began.elapsed());
        }
        for (agent, news) in self.reader.wait().await {
            if let News::Progress { job, text } = &news {
                (self.tell)(&Step::Progress(&agent, job, text));
            }
        }
        Ok(began.elapsed())
    }

    /// Notes what an agent's clock showed when it took its order.
    fn note_clock(&mut self, heard: &Heard) {
        let Heard::News(agent, News::Accepted { at_ns }) = heard else { return };
        let Some(asked_ns) = self.asked_ns else { return };
        let (agent, heard_ns) = (agent.clone(), self.utc_ns());
        self.answers.push(Answer { agent, asked_ns, said_ns: *at_ns, heard_ns });
    }

    fn tell_of(&self, heard: &Heard) {
        match heard {
            Heard::News(agent, news) => (self.tell)(&Step::News(agent, news)),
            Heard::Outcome(job) => {
                if let Some(outcome) = self.ledger.outcomes().get(job) {
                    let left = self.placement.jobs.len() - self.ledger.outcomes().len();
                    (self.tell)(&Step::Outcome(outcome, left));
                }
            }
            Heard::Nothing => {}
        }
    }

    /// Counts how long agents have been gone of which something is still to come.
    async fn look_for_the_lost(&mut self, now: Instant) {
        if now - self.looked < PRESENCE_INTERVAL {
            return;
        }
        // A broker that was gone does not count as an agent's absence.
        let since = (now - self.looked).min(PRESENCE_INTERVAL * 2);
        self.looked = now;
        // A broker that does not answer is noticed where it is read from.
        let _ = self.reader.mind(&self.store).await;
        let open = self.ledger.measuring().into_iter().chain(self.ledger.serving());
        let open: BTreeSet<_> = open.cloned().collect();
        for name in open {
            if let Ok(found) = self.store.agent(&name).await {
                self.presence.note(&name, found.map(|kept| kept.revision), since);
            }
        }
    }

    /// What the broker answers; while it is gone it is asked again.
    pub(super) async fn asked<T>(
        &mut self,
        request: impl AsyncFn(&Store) -> Result<T, NatsError>,
    ) -> Result<T, CampaignError> {
        loop {
            match request(&self.store).await {
                Ok(answer) => {
                    self.gone_since = None;
                    return Ok(answer);
                }
                Err(error) => self.is_gone(error).await?,
            }
        }
    }

    /// The broker does not answer. That is said once and waited for, but not for ever.
    pub(super) async fn is_gone(&mut self, error: NatsError) -> Result<(), CampaignError> {
        let since = *self.gone_since.get_or_insert_with(|| {
            (self.tell)(&Step::BrokerGone(&error));
            Instant::now()
        });
        if since.elapsed() > self.options.broker_patience {
            let campaign = self.id.clone();
            return Err(CampaignError::BrokerGone { campaign, error });
        }
        sleep(RETRY).await;
        Ok(())
    }

    /// How long measurements may still take.
    pub(super) fn left(&self) -> Duration {
        let deadline_ns = self.given.values().map(|given| given.order.deadline_ns).max();
        let deadline = Duration::from_nanos(deadline_ns.unwrap_or(0));
        let until_ns = self.course.at_ns.unwrap_or_default() - self.utc_ns();
        let until = Duration::from_nanos(until_ns.max(0) as u64);
        let since = Duration::from_nanos((-until_ns).max(0) as u64);
        (until + deadline + self.options.grace).saturating_sub(since).max(self.options.grace)
    }

    /// Whether nothing more is to be expected: what is missing is of agents that are gone.
    pub(super) fn is_all_measured(&self) -> bool {
        self.ledger.measuring().into_iter().all(|name| self.is_lost(name))
    }

    pub(super) fn is_all_told(&self) -> bool {
        self.is_all_measured() && self.ledger.serving().into_iter().all(|name| self.is_lost(name))
    }

    fn is_lost(&self, name: &AgentName) -> bool {
        self.presence.gone(name).is_some_and(|gone| gone >= self.options.lost_after)
    }

    /// Whether an agent is gone that may still come back.
    fn is_somebody_away(&self) -> bool {
        let mut open = self.ledger.measuring().into_iter().chain(self.ledger.serving());
        open.any(|name| self.presence.gone(name).is_some() && !self.is_lost(name))
    }
}
