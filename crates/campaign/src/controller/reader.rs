//! Reader of a campaign's reports: reads each message of the stream once, in the order of the
//! broker, and reassembles the reports. Invalid messages are counted and skipped, so that they
//! cannot stop a campaign.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::Subscriber;
use futures_util::{FutureExt, StreamExt};
use tokio::time::sleep;

use crate::nats::{BrokerStore, NatsError};
use crate::order::OrderEvent;
use crate::report::{AgentReport, AgentReportError, ReportFragment, ReportReassembly};
use crate::{AgentName, CampaignId};

/// Longest wait between two reads.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Largest number of messages per read.
const BATCH: usize = 512;
/// Largest size of a best-effort event, in bytes.
const PROGRESS_BYTES_MAX: usize = 16 << 10;

/// Position in the stream of reports, and the incomplete reports before it.
pub(super) struct AgentReportReader {
    /// Agents of the campaign. Fragments from others are not reassembled.
    agents: BTreeSet<String>,
    reassembly: ReportReassembly,
    next_sequence: u64,
    /// Creation time of the stream to which the position belongs: UTC, in ns since 1970.
    created_ns: i128,
    progress_events: Subscriber,
    /// Number of messages of unknown agents.
    pub(super) unknown_agent_messages: u64,
    /// Number of messages that are no reports.
    pub(super) unreadable: u64,
}

impl AgentReportReader {
    /// Opens the reader at the beginning.
    pub(super) async fn open(
        store: &BrokerStore,
        campaign: &CampaignId,
        agents: BTreeSet<String>,
    ) -> Result<Self, NatsError> {
        let progress_events = store.progress_events(campaign).await?;
        let reassembly = ReportReassembly::default();
        let created_ns = store.stream_created_ns().await?;
        Ok(Self {
            agents,
            reassembly,
            next_sequence: 1,
            created_ns,
            progress_events,
            unknown_agent_messages: 0,
            unreadable: 0,
        })
    }

    /// Restarts from the first message if the stream was created anew, as by a broker that
    /// restarted without its data.
    pub(super) async fn resync(&mut self, store: &BrokerStore) -> Result<(), NatsError> {
        let created_ns = store.stream_created_ns().await?;
        if created_ns != self.created_ns {
            (self.created_ns, self.next_sequence, self.reassembly) =
                (created_ns, 1, ReportReassembly::default());
        }
        Ok(())
    }

    /// Reads up to [`BATCH`] messages and returns the reports that they complete, each with the
    /// agent named in its subject.
    pub(super) async fn read(
        &mut self,
        store: &BrokerStore,
        campaign: &CampaignId,
    ) -> Result<Vec<(String, AgentReport)>, NatsError> {
        let mut reports = Vec::new();
        for _ in 0..BATCH {
            let Some(message) = store.next_report(campaign, self.next_sequence).await? else {
                break;
            };
            self.next_sequence = message.sequence + 1;
            if !self.agents.contains(&message.agent) {
                self.unknown_agent_messages += 1;
                continue;
            }
            match self.completed_report(&message.agent, &message.bytes) {
                Ok(report) => reports.extend(report.map(|report| (message.agent, report))),
                Err(_) => self.unreadable += 1,
            }
        }
        Ok(reports)
    }

    /// Returns the report that a message completes, if any.
    fn completed_report(
        &mut self,
        agent: &str,
        message: &[u8],
    ) -> Result<Option<AgentReport>, AgentReportError> {
        let packed = self.reassembly.add_fragment(agent, &ReportFragment::parse(message)?)?;
        packed.map(|packed| AgentReport::unpack(&packed)).transpose()
    }

    /// Waits for a best-effort event, at most for [`POLL_INTERVAL`]. Returns the events received.
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
