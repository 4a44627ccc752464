//! Naming the instant. There is one in a campaign: where an answer of the broker was lost, an agent
//! may have heard of an instant although nobody knows that it has. So before another one is named,
//! every order is written anew without one. Each change of an order names the revision that it
//! changes, so what was on its way comes too late for that, or had come before and is found.

use super::conduct::Controller;
use super::give::Holder;
use super::run::CampaignError;
use super::step::Step;
use crate::AgentName;
use crate::instruction::Instruction;
use crate::nats::{Change, Store};
use crate::order::Word;

impl Controller<'_> {
    /// Names the instant, and tells it to all; or tells those that have not heard of it which one
    /// the others have.
    pub(super) async fn start(&mut self) -> Result<(), CampaignError> {
        loop {
            let at_ns = match self.instant_before().await? {
                Some(at_ns) => at_ns,
                None => self.name_instant().await?,
            };
            self.give(Some(Word::Start { at_ns })).await?;
            let is_told = self.given.values().any(|given| given.word.is_some());
            if is_told || (self.flow)().is_break() {
                (self.tell)(&Step::Instant(at_ns));
                return Ok(());
            }
        }
    }

    /// It is kept first: a controller that goes on has to know that there was one. This also shows
    /// that the broker answers now.
    async fn name_instant(&mut self) -> Result<i64, CampaignError> {
        let lead_ns = i64::try_from(self.options.lead.as_nanos()).unwrap_or(i64::MAX);
        let at_ns = self.utc_ns().saturating_add(lead_ns);
        self.course.at_ns = Some(at_ns);
        self.keep_course().await?;
        Ok(at_ns)
    }

    /// The instant that an agent has been told of. When this gives none, no agent will hear of one
    /// that was named before.
    async fn instant_before(&mut self) -> Result<Option<i64>, CampaignError> {
        if self.course.at_ns.is_none() {
            return Ok(None);
        }
        let untold = self.given.iter().filter(|(_, given)| given.word.is_none());
        let untold: Vec<_> = untold.map(|(name, _)| name.clone()).collect();
        for name in untold {
            self.withdraw(&name).await?;
        }
        let at_ns = self.instant_given();
        if at_ns.is_some() {
            self.course.at_ns = at_ns;
        }
        Ok(at_ns)
    }

    /// The instant that stands in an agent's order, as far as that is known.
    pub(super) fn instant_given(&self) -> Option<i64> {
        self.given.values().find_map(|given| match given.word {
            Some(Word::Start { at_ns }) => Some(at_ns),
            _ => None,
        })
    }

    /// Writes an agent's order anew without an instant, unless it has one.
    async fn withdraw(&mut self, name: &AgentName) -> Result<(), CampaignError> {
        while let Some(given) = self.given.get(name) {
            let (revision, order) = (given.revision, given.order.clone());
            let bytes = Instruction { order, word: None }.pack();
            let give = async |store: &Store| store.give(name, bytes.clone(), revision).await;
            match self.asked(give).await? {
                Change::Made(revision) => {
                    self.note(name, revision, None);
                    return Ok(());
                }
                Change::Overtaken => match self.read_order(name).await? {
                    // One without an instant is this controller's own, whose answer was lost.
                    Holder::Own => return self.is_still_own().await,
                    Holder::Other(..) => return Ok(()),
                    Holder::Nobody => {}
                },
            }
        }
        Ok(())
    }
}
