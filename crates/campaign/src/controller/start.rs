//! Setting of the start time. A campaign has only one: if a response of the broker was lost, an
//! agent may have received a start time without confirmation. Before another one is set, every
//! order is therefore rewritten without a start time. Each change of an order names the revision
//! that it replaces, so an earlier write still in transit fails, or has already succeeded and is
//! found.

use super::assign::OrderOwner;
use super::driver::Controller;
use super::event::ControllerEvent;
use super::run::CampaignError;
use crate::AgentName;
use crate::assignment::Assignment;
use crate::nats::{BrokerStore, WriteOutcome};
use crate::order::OrderCommand;

impl Controller<'_> {
    /// Sets the start time and sends it to all agents, or sends an existing one to those that do
    /// not have it.
    pub(super) async fn announce_start(&mut self) -> Result<(), CampaignError> {
        loop {
            let at_ns = match self.instant_before().await? {
                Some(at_ns) => at_ns,
                None => self.name_instant().await?,
            };
            self.assign_all(Some(OrderCommand::Start { at_ns })).await?;
            let is_announced = self.issued_orders.values().any(|issued| issued.word.is_some());
            if is_announced || (self.flow)().is_break() {
                (self.event_sink)(&ControllerEvent::StartTime(at_ns));
                return Ok(());
            }
        }
    }

    /// Sets the start time. It is saved first: a resuming controller must know that one exists.
    /// This also shows that the broker is reachable now.
    async fn name_instant(&mut self) -> Result<i64, CampaignError> {
        let lead_ns = i64::try_from(self.options.lead.as_nanos()).unwrap_or(i64::MAX);
        let at_ns = self.utc_ns().saturating_add(lead_ns);
        self.state.at_ns = Some(at_ns);
        self.save_state().await?;
        Ok(at_ns)
    }

    /// Returns the start time that an agent has received. If there is none, no agent will receive
    /// one that was set before.
    async fn instant_before(&mut self) -> Result<Option<i64>, CampaignError> {
        if self.state.at_ns.is_none() {
            return Ok(None);
        }
        let untold = self.issued_orders.iter().filter(|(_, issued)| issued.word.is_none());
        let untold: Vec<_> = untold.map(|(name, _)| name.clone()).collect();
        for name in untold {
            self.withdraw(&name).await?;
        }
        let at_ns = self.issued_start_time();
        if at_ns.is_some() {
            self.state.at_ns = at_ns;
        }
        Ok(at_ns)
    }

    /// Returns the start time in an agent's order, as far as known.
    pub(super) fn issued_start_time(&self) -> Option<i64> {
        self.issued_orders.values().find_map(|issued| match issued.word {
            Some(OrderCommand::Start { at_ns }) => Some(at_ns),
            _ => None,
        })
    }

    /// Rewrites an agent's order without a start time, unless it has one.
    async fn withdraw(&mut self, name: &AgentName) -> Result<(), CampaignError> {
        while let Some(issued) = self.issued_orders.get(name) {
            let (revision, order) = (issued.revision, issued.order.clone());
            let bytes = Assignment { order, word: None }.pack();
            let give =
                async |store: &BrokerStore| store.put_order(name, bytes.clone(), revision).await;
            match self.with_retry(give).await? {
                WriteOutcome::Written(revision) => {
                    self.note(name, revision, None);
                    return Ok(());
                }
                WriteOutcome::Conflict => match self.read_order(name).await? {
                    // One without a start time is this controller's own, whose response was lost.
                    OrderOwner::Ours => return self.still_owns().await,
                    OrderOwner::Other(..) => return Ok(()),
                    OrderOwner::None => {}
                },
            }
        }
        Ok(())
    }
}
