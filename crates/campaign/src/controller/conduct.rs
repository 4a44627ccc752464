//! Conducting a campaign: it gives orders, waits for answers, names the instant, reads what is
//! told, ends the services. It holds nothing that it could not read again: killed at any moment,
//! another one goes on from what lies at the broker.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::clocks::{Answer, hindrance};
use super::course::Course;
use super::ledger::Ledger;
use super::presence::Presence;
use super::reader::Reader;
use super::run::{CampaignError, Collected, ControllerOptions, What};
use super::step::Step;
use super::wait::Waited;
use crate::nats::Store;
use crate::order::{Order, Word};
use crate::place::Placement;
use crate::plan::Plan;
use crate::{AgentName, CampaignId};

/// How long agents may take to answer an order.
const ANSWER_PATIENCE: Duration = Duration::from_secs(15);
/// How long their services may take to be ready.
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// How long services may take to end with their results.
const FINISH_PATIENCE: Duration = Duration::from_secs(30);

/// An agent's order at the broker.
pub(super) struct Given {
    pub(super) order: Order,
    pub(super) revision: u64,
    pub(super) word: Option<Word>,
}

impl Given {
    /// Whether the agent has its order with this word; without one, whether it has an order.
    pub(super) fn has(&self, word: Option<Word>) -> bool {
        self.revision != 0 && (word.is_none() || self.word == word)
    }
}

/// A campaign that is being conducted.
pub(super) struct Controller<'a> {
    pub(super) options: ControllerOptions,
    pub(super) tell: &'a dyn Fn(&Step<'_>),
    pub(super) flow: &'a dyn Fn() -> ControlFlow<()>,
    pub(super) store: Store,
    pub(super) id: CampaignId,
    pub(super) course: Course,
    pub(super) revision: u64,
    pub(super) plan: Plan,
    pub(super) placement: Placement,
    pub(super) given: BTreeMap<AgentName, Given>,
    pub(super) ledger: Ledger,
    pub(super) reader: Reader,
    /// Agents that are gone.
    pub(super) presence: Presence,
    pub(super) looked: Instant,
    pub(super) lost: BTreeSet<AgentName>,
    /// Since when the broker does not answer.
    pub(super) gone_since: Option<Instant>,
    pub(super) abandoned: bool,
    /// When the orders were given, where this controller has given them.
    pub(super) asked_ns: Option<i64>,
    /// What agents' clocks showed when they answered.
    pub(super) answers: Vec<Answer>,
    /// Whether the last look at what is told found nothing.
    pub(super) has_read_all: bool,
}

/// UTC, in ns since 1970.
fn utc_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64
}

impl ControllerOptions {
    /// What this controller takes for UTC, in ns since 1970.
    pub(super) fn utc_ns(&self) -> i64 {
        utc_ns().saturating_add(self.clock_injected_ns)
    }
}

impl Controller<'_> {
    pub(super) fn utc_ns(&self) -> i64 {
        self.options.utc_ns()
    }

    /// From orders to outcomes.
    pub(super) async fn conduct(&mut self) -> Result<Collected, CampaignError> {
        (self.tell)(&Step::Begun(&self.id, &self.placement));
        if !self.is_started() {
            self.prepare().await?;
            if !self.abandoned {
                self.start().await?;
            }
        } else if self.instant_given().is_some() && !self.abandoned {
            // The controller before may not have told it to all.
            self.start().await?;
        }
        let broker_gone = match self.collect().await {
            // What was measured is not lost with the broker.
            Err(error @ CampaignError::BrokerGone { .. }) if self.course.at_ns.is_some() => {
                self.name_the_lost();
                Some(error.to_string())
            }
            collected => {
                collected?;
                None
            }
        };
        Ok(Collected {
            campaign: self.id.clone(),
            plan: self.plan.clone(),
            placement: self.placement.clone(),
            agents: self.course.agents.clone(),
            unusable: self.course.unusable.clone(),
            at_ns: self.course.at_ns,
            outcomes: self.ledger.take_outcomes(),
            lost: self.lost.clone(),
            broker_gone,
            abandoned: self.abandoned,
            twice: self.ledger.twice,
            strange: self.ledger.strange + self.reader.strange,
            unreadable: self.reader.unreadable,
        })
    }

    /// Whether agents have been told of an instant, or may have been.
    fn is_started(&self) -> bool {
        let has_word = self.given.values().any(|given| given.word.is_some());
        self.course.at_ns.is_some() && (has_word || self.ledger.has_started())
    }

    /// Gives the orders, and waits until all agents are ready. Where one is not, nobody starts.
    async fn prepare(&mut self) -> Result<(), CampaignError> {
        // One that goes on where another was reads answers to that one.
        self.asked_ns = matches!(self.options.what, What::Plan(..)).then(|| self.utc_ns());
        if let Err(error) = self.give(None).await {
            return match error {
                CampaignError::NotStarted(why) => self.call_off(why).await,
                other => Err(other),
            };
        }
        if self.asked_ns.is_none() {
            self.hear_clocks().await?;
        }
        let waited = self
            .wait(ANSWER_PATIENCE, |it| {
                it.ledger.silent().is_empty() || !it.ledger.refusals().is_empty()
            })
            .await?;
        let ready = match waited {
            Waited::Done if self.ledger.refusals().is_empty() && self.wrong_clock().is_none() => {
                self.wait(READY_PATIENCE, |it| {
                    it.ledger.unready().is_empty() || !it.ledger.refusals().is_empty()
                })
                .await?
            }
            waited => waited,
        };
        if ready == Waited::Stopped {
            self.abandoned = true;
            return Ok(());
        }
        let why = self.hindrance(ready == Waited::Late);
        match why {
            Some(why) => self.call_off(why).await,
            None => Ok(()),
        }
    }

    /// Lets all agents go that have taken their orders. Nobody has begun, so there is nothing to be
    /// collected.
    async fn call_off(&mut self, why: String) -> Result<(), CampaignError> {
        self.give(Some(Word::Abandon)).await?;
        self.wait(FINISH_PATIENCE, Self::is_all_told).await?;
        self.release().await;
        self.forget().await;
        Err(CampaignError::NotStarted(why))
    }

    fn hindrance(&self, is_late: bool) -> Option<String> {
        let refusals = self.ledger.refusals();
        if !refusals.is_empty() {
            let told: Vec<_> =
                refusals.iter().map(|(name, why)| format!("agent {name}: {why}")).collect();
            return Some(told.join("; "));
        }
        let silent = if self.ledger.silent().is_empty() {
            self.ledger.unready()
        } else {
            self.ledger.silent()
        };
        let names: Vec<_> = silent.iter().map(ToString::to_string).collect();
        let late = is_late
            .then(|| format!("no answer in time from {}; see to that agent", names.join(", ")));
        late.or_else(|| self.wrong_clock())
    }

    /// Why this machine's clock can name no instant for the agents, if it cannot.
    fn wrong_clock(&self) -> Option<String> {
        hindrance(&self.answers, self.options.lead)
    }

    /// Reads what is told until all that was measured has come, the time is over, or it is given
    /// up; and ends it.
    async fn collect(&mut self) -> Result<(), CampaignError> {
        if self.course.at_ns.is_some() {
            let waited = self.wait(self.left(), Self::is_all_measured).await?;
            self.abandoned |= waited == Waited::Stopped;
        }
        self.finish().await
    }

    /// Ends the services, or everything, and lets the agents go.
    async fn finish(&mut self) -> Result<(), CampaignError> {
        if self.abandoned {
            (self.tell)(&Step::Abandoned);
        }
        // One that goes on gives it up too. One that has taken over has the last words.
        self.course.abandoned = self.abandoned;
        self.keep_course().await?;
        let word = if self.abandoned { Word::Abandon } else { Word::Finish };
        // One that has told all has nothing to end, and may work for others already.
        let open = self.given.keys().filter(|name| !self.ledger.has_told_all(name));
        self.give_to(open.cloned().collect(), Some(word)).await?;
        self.wait_for_all(FINISH_PATIENCE + self.options.grace).await?;
        self.name_the_lost();
        self.release().await;
        Ok(())
    }

    fn name_the_lost(&mut self) {
        let missing = self.ledger.measuring().into_iter().chain(self.ledger.serving());
        self.lost = missing.cloned().collect();
        for name in &self.lost {
            (self.tell)(&Step::Lost(name));
        }
    }

    /// Removes what lies at the broker, where no other controller has taken over. What stays there
    /// is gone after a week.
    pub(super) async fn forget(&self) {
        let _ = self.store.forget(&self.id, self.revision).await;
    }
}
