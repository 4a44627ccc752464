//! What is kept at the broker, and by which rules it is read and written. Three buckets hold what
//! is: the agents that are there, each agent's present order, each campaign's state. One stream
//! holds what was told: the reports of each campaign, until its controller has written its result.
//!
//! Whoever waits is not told what to do, but that there is something to be looked at (a bell: a
//! message that may be lost). The truth is read from bucket or stream, from where one was, so that
//! nothing depends on who was connected when. Every request is bounded in time.

use std::fmt::Display;
use std::future::{Future, IntoFuture};
use std::time::Duration;

use async_nats::jetstream::kv::{self, Operation, UpdateErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{self, DirectGetErrorKind, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, Subscriber};
use tokio::time::timeout;

use super::connect::{NatsError, REQUEST_PATIENCE, told};
use crate::{AgentName, CampaignId};

const AGENTS: &str = "horolog-agents";
const ORDERS: &str = "horolog-orders";
const CAMPAIGNS: &str = "horolog-campaigns";
const REPORTS: &str = "HOROLOG";
const SUBJECT: &str = "horolog.campaign";
const BELL: &str = "horolog.bell";
const PROGRESS: &str = "horolog.progress";

/// How long an agent is known after it has last said that it is there.
pub const AGENT_AGE_MAX: Duration = Duration::from_secs(10);
/// How long orders and campaigns are kept that nobody has ended.
const AGE_MAX: Duration = Duration::from_hours(7 * 24);
/// How long the broker knows what it has been told, to drop what comes twice.
const DUPLICATES: Duration = Duration::from_mins(10);
/// Room for the reports of all campaigns; where it is used up, agents keep theirs and try again.
const REPORTS_BYTES_MAX: i64 = 1 << 30;
const BUCKET_BYTES_MAX: i64 = 128 << 20;
/// What a message has beside its content.
const OVERHEAD: usize = 4 << 10;

/// Buckets and stream of a broker.
#[derive(Clone, Debug)]
pub struct Store {
    client: Client,
    context: Context,
    agents: kv::Store,
    orders: kv::Store,
    campaigns: kv::Store,
    reports: Stream,
}

/// A value of a bucket.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Which of all values of the bucket it is; a change names the one that it changes.
    pub revision: u64,
    /// The value.
    pub bytes: Vec<u8>,
}

/// A message of the stream.
#[derive(Clone, Debug)]
pub struct Told {
    /// Where it stands; later ones are greater.
    pub sequence: u64,
    /// By whom, as its subject says.
    pub agent: String,
    /// The message.
    pub bytes: Vec<u8>,
}

/// How a change of a value went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It is now this revision.
    Made(u64),
    /// Somebody else has changed it before.
    Overtaken,
}

/// Has a request not take for ever.
async fn bounded<T, E: std::error::Error>(
    what: &'static str,
    request: impl IntoFuture<Output = Result<T, E>>,
) -> Result<T, NatsError> {
    let request = timeout(REQUEST_PATIENCE, request.into_future());
    let answer = request.await.map_err(|_| NatsError::Late(what))?;
    answer.map_err(|error| failed(what, told(&error)))
}

fn failed(what: &'static str, why: impl Display) -> NatsError {
    NatsError::Request { what, why: why.to_string() }
}

impl Store {
    /// Opens the buckets and the stream, and makes those that are not there. `servers` is for
    /// complaints.
    ///
    /// # Errors
    ///
    /// The broker keeps nothing, does not allow it, or does not answer.
    pub async fn open(client: Client, servers: &str, replicas: usize) -> Result<Self, NatsError> {
        let context = jetstream::new(client.clone());
        has_jetstream(&context, servers).await?;
        let open = async |name, says, age_max| {
            let config = stream::Config { num_replicas: replicas, ..bucket(name, says, age_max) };
            bounded("make a bucket", context.get_or_create_stream(config)).await?;
            bounded("open a bucket", context.get_key_value(name)).await
        };
        let reports = stream::Config {
            name: REPORTS.to_owned(),
            description: Some("horolog: what agents have told of campaigns".to_owned()),
            subjects: vec![format!("{SUBJECT}.*.*")],
            max_age: AGE_MAX,
            max_bytes: REPORTS_BYTES_MAX,
            discard: stream::DiscardPolicy::New,
            duplicate_window: DUPLICATES,
            allow_direct: true,
            num_replicas: replicas,
            ..stream::Config::default()
        };
        let agents = open(AGENTS, "horolog: agents that are there", AGENT_AGE_MAX).await?;
        let orders = open(ORDERS, "horolog: what each agent is to do", AGE_MAX).await?;
        let campaigns = open(CAMPAIGNS, "horolog: campaigns that are not over", AGE_MAX).await?;
        let reports = bounded("make a stream", context.get_or_create_stream(reports)).await?;
        Ok(Self { client, context, agents, orders, campaigns, reports })
    }

    /// Makes buckets and stream anew where they are gone, as at a broker that came back empty.
    ///
    /// # Errors
    ///
    /// [`NatsError`], as everywhere here.
    pub async fn reopen(&self, servers: &str, replicas: usize) -> Result<(), NatsError> {
        Self::open(self.client.clone(), servers, replicas).await.map(drop)
    }

    /// Bytes that may stand in one message.
    #[must_use]
    pub fn message_bytes_max(&self) -> usize {
        self.client.max_payload().saturating_sub(OVERHEAD).max(1)
    }

    /// Says that an agent is there.
    ///
    /// # Errors
    ///
    /// [`NatsError`], as everywhere here.
    pub async fn announce(&self, name: &AgentName, state: Vec<u8>) -> Result<(), NatsError> {
        let put = self.agents.put(name.as_str(), state.into());
        bounded("take note of an agent", put).await.map(drop)
    }

    /// Says that an agent is there no more.
    pub async fn retire(&self, name: &AgentName) -> Result<(), NatsError> {
        bounded("forget an agent", self.agents.purge(name.as_str())).await
    }

    /// What an agent of this name has last said of itself.
    pub async fn agent(&self, name: &AgentName) -> Result<Option<Kept>, NatsError> {
        entry(&self.agents, name.as_str()).await
    }

    /// What all agents have last said that are there.
    pub async fn agents(&self) -> Result<Vec<Kept>, NatsError> {
        let mut all = Vec::new();
        for name in keys(&self.agents).await? {
            all.extend(entry(&self.agents, &name).await?);
        }
        Ok(all)
    }

    /// What an agent is to do.
    pub async fn order(&self, name: &AgentName) -> Result<Option<Kept>, NatsError> {
        entry(&self.orders, name.as_str()).await
    }

    /// The same, where one that was taken back is there as well, and empty.
    pub async fn order_or_end(&self, name: &AgentName) -> Result<Option<Kept>, NatsError> {
        let entry = bounded("give back what it keeps", self.orders.entry(name.as_str())).await?;
        Ok(entry.map(|entry| {
            let is_there = entry.operation == Operation::Put;
            let bytes = if is_there { entry.value.into() } else { Vec::new() };
            Kept { revision: entry.revision, bytes }
        }))
    }

    /// Has an agent look at what it is to do, which takes the place of this revision (0: none).
    pub async fn give(
        &self,
        name: &AgentName,
        order: Vec<u8>,
        revision: u64,
    ) -> Result<Change, NatsError> {
        let change = change(&self.orders, name.as_str(), order, revision).await?;
        if let Change::Made(revision) = change {
            // It looks by itself now and then where it does not hear this.
            let bell = self.client.publish(bell(name), revision.to_string().into());
            let _ = timeout(REQUEST_PATIENCE, bell).await;
        }
        Ok(change)
    }

    /// Takes back what an agent was to do.
    pub async fn release(&self, name: &AgentName, revision: u64) -> Result<(), NatsError> {
        let purge = self.orders.purge_expect_revision(name.as_str(), Some(revision));
        bounded("take an order back", purge).await
    }

    /// Rings when there is something to be done for an agent.
    pub async fn bells(&self, name: &AgentName) -> Result<Subscriber, NatsError> {
        bounded("subscribe", self.client.subscribe(bell(name))).await
    }

    /// The state of a campaign.
    pub async fn campaign(&self, id: &CampaignId) -> Result<Option<Kept>, NatsError> {
        entry(&self.campaigns, id.as_str()).await
    }

    /// Has this take the place of a campaign's state of this revision (0: none).
    pub async fn keep_campaign(
        &self,
        id: &CampaignId,
        state: Vec<u8>,
        revision: u64,
    ) -> Result<Change, NatsError> {
        change(&self.campaigns, id.as_str(), state, revision).await
    }

    /// The campaigns that are not over.
    pub async fn campaigns(&self) -> Result<Vec<String>, NatsError> {
        keys(&self.campaigns).await
    }

    /// Keeps a part of a report; one with the identifier of an earlier one is dropped. When this
    /// returns without an error, the broker has it.
    pub async fn tell(
        &self,
        campaign: &CampaignId,
        agent: &AgentName,
        id: &str,
        message: Vec<u8>,
    ) -> Result<(), NatsError> {
        const WHAT: &str = "keep a report";
        let publish = PublishMessage::build().message_id(id).payload(message.into());
        let subject = format!("{SUBJECT}.{campaign}.{agent}");
        let sent = bounded(WHAT, self.context.send_publish(subject, publish)).await?;
        bounded(WHAT, sent).await.map(drop)
    }

    /// The first message of a campaign at or behind this place in the stream.
    pub async fn told(&self, campaign: &CampaignId, from: u64) -> Result<Option<Told>, NatsError> {
        const WHAT: &str = "give back a report";
        let request = self.reports.direct_get_next_for_subject(subjects(campaign), Some(from));
        let answer = timeout(REQUEST_PATIENCE, request).await.map_err(|_| NatsError::Late(WHAT))?;
        match answer {
            Ok(message) => Ok(Some(Told {
                sequence: message.sequence,
                agent: message.subject.rsplit('.').next().unwrap_or_default().to_owned(),
                bytes: message.payload.into(),
            })),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(WHAT, told(&error))),
        }
    }

    /// When the stream of reports was made, in ns since 1970.
    pub async fn made_ns(&self) -> Result<i128, NatsError> {
        let info = bounded("tell of its stream", self.reports.get_info()).await?;
        Ok(info.created.unix_timestamp_nanos())
    }

    /// Whether the campaign was here and has been removed.
    pub async fn is_forgotten(&self, id: &CampaignId) -> Result<bool, NatsError> {
        let entry = self.campaigns.entry(id.as_str());
        let entry = bounded("say what it has kept", entry).await?;
        Ok(entry.is_some_and(|entry| entry.operation != Operation::Put))
    }

    /// Removes all that is kept of a campaign, where its state is of this revision still.
    pub async fn forget(&self, campaign: &CampaignId, revision: u64) -> Result<(), NatsError> {
        let purge = self.campaigns.purge_expect_revision(campaign.as_str(), Some(revision));
        bounded("forget a campaign", purge).await?;
        let purge = self.reports.purge().filter(subjects(campaign));
        bounded("remove reports", purge).await.map(drop)
    }

    /// Says how a campaign is coming along; nobody keeps it.
    pub async fn murmur(&self, campaign: &CampaignId, agent: &AgentName, message: Vec<u8>) {
        let subject = format!("{PROGRESS}.{campaign}.{agent}");
        let _ = timeout(REQUEST_PATIENCE, self.client.publish(subject, message.into())).await;
    }

    /// Hears that.
    pub async fn murmurs(&self, campaign: &CampaignId) -> Result<Subscriber, NatsError> {
        let subject = format!("{PROGRESS}.{campaign}.*");
        bounded("subscribe", self.client.subscribe(subject)).await
    }

    /// Has all that was published sent, where the broker is there.
    pub async fn flush(&self) {
        let _ = timeout(REQUEST_PATIENCE, self.client.flush()).await;
    }
}

fn bell(name: &AgentName) -> String {
    format!("{BELL}.{name}")
}

fn subjects(campaign: &CampaignId) -> String {
    format!("{SUBJECT}.{campaign}.*")
}

/// A bucket as the stream that it is to the broker. The library's own way of making one asks first
/// what servers before 2.10 do not tell.
fn bucket(name: &str, says: &str, max_age: Duration) -> stream::Config {
    stream::Config {
        name: format!("KV_{name}"),
        description: Some(says.to_owned()),
        subjects: vec![format!("$KV.{name}.>")],
        max_messages_per_subject: 1,
        max_bytes: BUCKET_BYTES_MAX,
        max_age,
        discard: stream::DiscardPolicy::New,
        allow_rollup: true,
        deny_delete: true,
        allow_direct: true,
        ..stream::Config::default()
    }
}

async fn has_jetstream(context: &Context, servers: &str) -> Result<(), NatsError> {
    use jetstream::context::RequestErrorKind as Kind;
    const WHAT: &str = "say whether it has JetStream";
    let request = context.request::<_, _, Response<serde_json::Value>>("INFO", b"");
    let why = match timeout(REQUEST_PATIENCE, request).await {
        Ok(Ok(Response::Ok(_))) => return Ok(()),
        // It is there and says that there is none: for this server, or for this account.
        Ok(Ok(Response::Err { error })) => told(&error),
        Ok(Err(error)) if error.kind() == Kind::NoResponders => "nothing answers for it".to_owned(),
        Ok(Err(error)) => return Err(failed(WHAT, told(&error))),
        Err(_) => return Err(NatsError::Late(WHAT)),
    };
    Err(NatsError::NoJetStream { servers: servers.to_owned(), why })
}

async fn entry(bucket: &kv::Store, key: &str) -> Result<Option<Kept>, NatsError> {
    let entry = bounded("give back what it keeps", bucket.entry(key)).await?;
    let is_there = |entry: &kv::Entry| entry.operation == Operation::Put;
    let kept = |entry: kv::Entry| Kept { revision: entry.revision, bytes: entry.value.into() };
    Ok(entry.filter(is_there).map(kept))
}

async fn keys(bucket: &kv::Store) -> Result<Vec<String>, NatsError> {
    use futures_util::TryStreamExt;
    const WHAT: &str = "list what it keeps";
    let keys = bounded(WHAT, bucket.keys()).await?;
    let mut keys: Vec<String> = bounded(WHAT, keys.try_collect::<Vec<_>>()).await?;
    keys.sort_unstable();
    Ok(keys)
}

/// Changes a value where it has not been changed since. What was taken away before is as what never
/// was.
async fn change(
    bucket: &kv::Store,
    key: &str,
    bytes: Vec<u8>,
    revision: u64,
) -> Result<Change, NatsError> {
    const WHAT: &str = "keep what it was given";
    let change: std::pin::Pin<Box<dyn Future<Output = _> + Send>> = if revision == 0 {
        Box::pin(async {
            use kv::CreateErrorKind::AlreadyExists;
            let created = bucket.create(key, bytes.into()).await;
            created.map_err(|error| (error.kind() == AlreadyExists, told(&error)))
        })
    } else {
        Box::pin(async {
            let updated = bucket.update(key, bytes.into(), revision).await;
            updated
                .map_err(|error| (error.kind() == UpdateErrorKind::WrongLastRevision, told(&error)))
        })
    };
    match timeout(REQUEST_PATIENCE, change).await {
        Ok(Ok(revision)) => Ok(Change::Made(revision)),
        Ok(Err((true, _))) => Ok(Change::Overtaken),
        Ok(Err((false, why))) => Err(failed(WHAT, why)),
        Err(_) => Err(NatsError::Late(WHAT)),
    }
}
