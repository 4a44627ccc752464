//! Reader of a campaign's reports, from its last position: each message once, in the order of the
//! broker. Invalid messages are counted and skipped, so that they cannot stop a campaign.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::Subscriber;
use futures_util::{FutureExt, StreamExt};
use tokio::time::sleep;

use crate::nats::{BrokerStore, NatsError};
use crate::order::OrderEvent;
use crate::report::{AgentReport, Fragment, MessageError, Reassembly};
use crate::{AgentName, CampaignId};

/// Interval of reads.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Largest number of messages read before they are processed.
const BATCH: usize = 512;
/// Largest size of a best-effort event, in bytes.
const PROGRESS_BYTES_MAX: usize = 16 << 10;

/// Position in the stream of reports.
pub(super) struct ReportReader {
    /// Agents of the campaign. Fragments from others are not reassembled.
    agents: BTreeSet<String>,
    assembly: Reassembly,
    next: u64,
    /// Creation time of the stream to which the position belongs, in ns since 1970.
    made_ns: i128,
    progress_events: Subscriber,
    /// Messages of unknown agents.
    pub(super) strange: u64,
    /// Messages that are no reports.
    pub(super) unreadable: u64,
}

impl ReportReader {
    /// Opens the reader at the beginning.
    pub(super) async fn open(
        store: &BrokerStore,
        campaign: &CampaignId,
        agents: BTreeSet<String>,
    ) -> Result<Self, NatsError> {
        let murmurs = store.progress_events(campaign).await?;
        let assembly = Reassembly::default();
        let made_ns = store.created_ns().await?;
        Ok(Self {
            agents,
            assembly,
            next: 1,
            made_ns,
            progress_events: murmurs,
            strange: 0,
            unreadable: 0,
        })
    }

    /// Restarts from the beginning if the stream is another one, as at a broker that restarted
    /// without its data.
    pub(super) async fn resync(&mut self, store: &BrokerStore) -> Result<(), NatsError> {
        let made_ns = store.created_ns().await?;
        if made_ns != self.made_ns {
            (self.made_ns, self.next, self.assembly) = (made_ns, 1, Reassembly::default());
        }
        Ok(())
    }

    /// Returns the reports completed since the last read, with the agents of their subjects.
    pub(super) async fn read(
        &mut self,
        store: &BrokerStore,
        campaign: &CampaignId,
    ) -> Result<Vec<(String, AgentReport)>, NatsError> {
        let mut reports = Vec::new();
        for _ in 0..BATCH {
            let Some(message) = store.next_report(campaign, self.next).await? else { break };
            self.next = message.sequence + 1;
            if !self.agents.contains(&message.agent) {
                self.strange += 1;
                continue;
            }
            match self.completed(&message.agent, &message.bytes) {
                Ok(report) => reports.extend(report.map(|report| (message.agent, report))),
                Err(_) => self.unreadable += 1,
            }
        }
        Ok(reports)
    }

    /// Returns the report that a message completes, if any.
    fn completed(
        &mut self,
        agent: &str,
        message: &[u8],
    ) -> Result<Option<AgentReport>, MessageError> {
        let packed = self.assembly.take(agent, &Fragment::parse(message)?)?;
        packed.map(|packed| AgentReport::unpack(&packed)).transpose()
    }

    /// Waits for a short time, or until a best-effort event arrives. Returns the events received.
    pub(super) async fn wait(&mut self) -> Vec<(AgentName, OrderEvent)> {
        let mut received = Vec::new();
        tokio::select! {
            Some(message) = self.progress_events.next() => received.extend(parse_event(&message)),
            () = sleep(POLL_INTERVAL) => {}
        }
        while let Some(message) = self.progress_events.next().now_or_never().flatten() {
            received.extend(parse_event(&message));
        }
        received
    }
}

fn parse_event(message: &async_nats::Message) -> Option<(AgentName, OrderEvent)> {
    let agent = message.subject.rsplit('.').next()?.parse().ok()?;
    let bytes = Some(&message.payload).filter(|bytes| bytes.len() <= PROGRESS_BYTES_MAX)?;
    Some((agent, serde_json::from_slice(bytes).ok()?))
}
