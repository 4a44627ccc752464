//! A controller's words to agents: orders given, changed and taken back, each only where nobody
//! else has changed it meanwhile.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::conduct::{Controller, Given};
use super::run::CampaignError;
use super::wait::RETRY;
use crate::instruction::Instruction;
use crate::nats::{Change, NatsError, Store};
use crate::order::{AgentState, Word};
use crate::{AgentName, CampaignId};

/// How long an agent has to be seen without the campaign that its order is of, for the order to be
/// one that a dead controller left.
const STALE_AFTER: Duration = Duration::from_secs(5);
/// An instant that is nearer than this is not given to anybody any more.
const LEAD_MIN: Duration = Duration::from_millis(100);

/// Whose order lies at the broker for an agent.
pub(super) enum Holder {
    /// This campaign's.
    Own,
    /// None that can be read.
    Nobody,
    /// Another campaign's, of this revision.
    Other(CampaignId, u64),
}

impl Controller<'_> {
    /// Gives all agents their orders with this word. An instant that is over is given to nobody,
    /// unless somebody is known to have it already: then the others say that they missed it.
    pub(super) async fn give(&mut self, word: Option<Word>) -> Result<(), CampaignError> {
        self.give_to(self.given.keys().cloned().collect(), word).await
    }

    /// The same, to these.
    pub(super) async fn give_to(
        &mut self,
        mut left: Vec<AgentName>,
        word: Option<Word>,
    ) -> Result<(), CampaignError> {
        left.retain(|name| !self.given[name].has(word));
        while !left.is_empty() {
            if let Some(Word::Start { at_ns }) = word {
                let is_near = at_ns.saturating_sub(self.utc_ns()) < LEAD_MIN.as_nanos() as i64;
                if is_near && self.given.values().all(|given| given.word.is_none()) {
                    return Ok(());
                }
            }
            let requests = left.iter().map(|name| self.give_one(name, word));
            let answers = futures_util::future::join_all(requests).await;
            let names = std::mem::take(&mut left);
            for (name, answer) in names.into_iter().zip(answers) {
                match answer {
                    Ok(Some(revision)) => {
                        self.gone_since = None;
                        self.note(&name, revision, word);
                    }
                    Ok(None) => {
                        if self.is_to_be_given_again(&name, word).await? {
                            left.push(name);
                        }
                    }
                    Err(error) => {
                        self.is_gone(error).await?;
                        left.push(name);
                    }
                }
            }
        }
        Ok(())
    }

    async fn give_one(
        &self,
        name: &AgentName,
        word: Option<Word>,
    ) -> Result<Option<u64>, NatsError> {
        let Some(Given { order, revision, .. }) = self.given.get(name) else { return Ok(None) };
        let instruction = Instruction { order: order.clone(), word }.pack();
        match self.store.give(name, instruction, *revision).await? {
            Change::Made(revision) => Ok(Some(revision)),
            Change::Overtaken => Ok(None),
        }
    }

    /// Notes what lies at the broker for an agent.
    pub(super) fn note(&mut self, name: &AgentName, revision: u64, word: Option<Word>) {
        if let Some(given) = self.given.get_mut(name) {
            (given.revision, given.word) = (revision, word);
        }
    }

    /// Finds out what lies at the broker for an agent, and notes it where it is nobody else's.
    pub(super) async fn read_order(&mut self, name: &AgentName) -> Result<Holder, CampaignError> {
        let kept = self.asked(async |store: &Store| store.order(name).await).await?;
        let revision = kept.as_ref().map_or(0, |kept| kept.revision);
        match kept.and_then(|kept| Instruction::unpack(&kept.bytes).ok()) {
            Some(Instruction { order, word }) if order.campaign == self.id => {
                self.note(name, revision, word);
                Ok(Holder::Own)
            }
            Some(other) => Ok(Holder::Other(other.order.campaign, revision)),
            None => {
                self.note(name, revision, None);
                Ok(Holder::Nobody)
            }
        }
    }

    /// Somebody has changed the agent's order: this controller itself, whose request was carried
    /// out although its answer was lost; or another campaign has the agent.
    async fn is_to_be_given_again(
        &mut self,
        name: &AgentName,
        word: Option<Word>,
    ) -> Result<bool, CampaignError> {
        match self.read_order(name).await? {
            Holder::Own if self.given[name].has(word) => Ok(false),
            Holder::Own => self.is_still_own().await.map(|()| true),
            Holder::Nobody => Ok(true),
            Holder::Other(other, revision) => {
                if self.is_stale(name, &other, revision).await? {
                    self.note(name, revision, None);
                    return Ok(true);
                }
                if word.is_some() {
                    // What it has measured may still come.
                    return Ok(false);
                }
                Err(CampaignError::NotStarted(format!(
                    "agent {name} works for campaign {other}; wait for its end, or end it with \
                     'horolog campaign run --resume {other}' and Ctrl-C"
                )))
            }
        }
    }

    /// Whether an order was left by a controller that is dead: the agent is there, and for some
    /// seconds does not work for it.
    async fn is_stale(
        &mut self,
        name: &AgentName,
        other: &CampaignId,
        revision: u64,
    ) -> Result<bool, CampaignError> {
        let started = Instant::now();
        while started.elapsed() < STALE_AFTER {
            sleep(RETRY).await;
            let state = self.asked(async |store: &Store| store.agent(name).await).await?;
            let state = state.and_then(|kept| AgentState::parse(&kept.bytes));
            let is_free = state.is_some_and(|state| state.busy.as_ref() != Some(other));
            let now = self.asked(async |store: &Store| store.order(name).await).await?;
            if !is_free || now.map_or(0, |kept| kept.revision) != revision {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes the orders back, but for those of lost agents: should one come back, it finds that it
    /// is to end.
    pub(super) async fn release(&mut self) {
        for (name, given) in self.given.iter().filter(|(_, given)| given.revision != 0) {
            if self.lost.contains(name) {
                let lost = Instruction { order: given.order.clone(), word: Some(Word::Abandon) };
                let _ = self.store.give(name, lost.pack(), given.revision).await;
            } else {
                let _ = self.store.release(name, given.revision).await;
            }
        }
    }
}
