//! Reads what agents tell of a campaign, from where it was: each message once, in the broker's
//! order. What is no report is counted and passed over, so that it cannot stop a campaign.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::Subscriber;
use futures_util::{FutureExt, StreamExt};
use tokio::time::sleep;

use crate::message::{Assembly, MessageError, Part, Report};
use crate::nats::{NatsError, Store};
use crate::order::News;
use crate::{AgentName, CampaignId};

/// How often it looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Messages that are read before anything is done about them, at most.
const BATCH: usize = 512;
/// Bytes of news that nobody keeps, at most.
const MURMUR_BYTES_MAX: usize = 16 << 10;

/// A place in what is told.
pub(super) struct Reader {
    /// The agents of the campaign. What others tell is not even put together.
    agents: BTreeSet<String>,
    assembly: Assembly,
    next: u64,
    /// When the stream was made in which that place is.
    made_ns: i128,
    murmurs: Subscriber,
    /// Messages of strangers.
    pub(super) strange: u64,
    /// Messages that are no reports.
    pub(super) unreadable: u64,
}

impl Reader {
    /// At the beginning.
    pub(super) async fn open(
        store: &Store,
        campaign: &CampaignId,
        agents: BTreeSet<String>,
    ) -> Result<Self, NatsError> {
        let murmurs = store.murmurs(campaign).await?;
        let assembly = Assembly::default();
        let made_ns = store.made_ns().await?;
        Ok(Self { agents, assembly, next: 1, made_ns, murmurs, strange: 0, unreadable: 0 })
    }

    /// Begins anew where the stream is another one, as at a broker that came back empty.
    pub(super) async fn mind(&mut self, store: &Store) -> Result<(), NatsError> {
        let made_ns = store.made_ns().await?;
        if made_ns != self.made_ns {
            (self.made_ns, self.next, self.assembly) = (made_ns, 1, Assembly::default());
        }
        Ok(())
    }

    /// The reports that have been completed since, with the agents by whose subjects they came.
    pub(super) async fn read(
        &mut self,
        store: &Store,
        campaign: &CampaignId,
    ) -> Result<Vec<(String, Report)>, NatsError> {
        let mut reports = Vec::new();
        for _ in 0..BATCH {
            let Some(message) = store.told(campaign, self.next).await? else { break };
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

    /// The report that a message completes, if it does.
    fn completed(&mut self, agent: &str, message: &[u8]) -> Result<Option<Report>, MessageError> {
        let packed = self.assembly.take(agent, &Part::parse(message)?)?;
        packed.map(|packed| Report::unpack(&packed)).transpose()
    }

    /// Waits a little while, less where something is said, and gives what was said meanwhile that
    /// nobody keeps.
    pub(super) async fn wait(&mut self) -> Vec<(AgentName, News)> {
        let mut heard = Vec::new();
        tokio::select! {
            Some(message) = self.murmurs.next() => heard.extend(news(&message)),
            () = sleep(LOOK_INTERVAL) => {}
        }
        while let Some(message) = self.murmurs.next().now_or_never().flatten() {
            heard.extend(news(&message));
        }
        heard
    }
}

fn news(message: &async_nats::Message) -> Option<(AgentName, News)> {
    let agent = message.subject.rsplit('.').next()?.parse().ok()?;
    let bytes = Some(&message.payload).filter(|bytes| bytes.len() <= MURMUR_BYTES_MAX)?;
    Some((agent, serde_json::from_slice(bytes).ok()?))
}
