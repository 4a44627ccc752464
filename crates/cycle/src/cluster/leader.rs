//! Leader's side of a cluster: accepts members, and controls each of them as a node of the run.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::Host;

use super::NodeClockOffset;
use super::message::{
    ENTRIES_MAX, LeaderMessage, MEMBER_LINE_MAX, MemberMessage, NodeReply, PROTOCOL_VERSION,
    TaskStatus, parse_line,
};
use super::responder::NtpResponder;
use crate::entry::PeriodEntry;
use crate::node::{NodeOrder, NodeReady, NodeStartCommand};
use crate::run::child::receive_until;

/// Timeout of a member that sends no messages, and of a write to it.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a pending member's first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of the checks for pending members.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Largest number of queued messages of a member; then TCP flow control makes the member wait.
const WAITING_MAX: usize = 256;
/// Largest number of pending members; beyond it the oldest connection is closed.
const PENDING_MAX: usize = 64;
/// Largest number of stored clock measurements of a member.
const CLOCKS_MAX: usize = 1_024;

/// Leader's listener for members, and the NTP server for their clock measurements.
#[derive(Debug)]
pub(crate) struct LeaderListener {
    listener: TcpListener,
    /// Address of the listener and of the NTP server.
    pub(crate) address: SocketAddr,
    _clock: NtpResponder,
}

/// Node on another host, as the leader controls it over the connection to its member.
#[derive(Debug)]
pub(crate) struct RemoteNode {
    /// Name of the node, as sent by the member.
    pub(crate) name: String,
    /// Host of the node.
    pub(crate) host: Host,
    /// Address of the member's end of the connection.
    pub(crate) address: SocketAddr,
    stream: TcpStream,
    messages: Receiver<MemberMessage>,
    last_received: Instant,
    entries: Vec<Vec<PeriodEntry>>,
    states: Vec<TaskStatus>,
    clocks: Vec<NodeClockOffset>,
    /// Reason for which the latest clock measurement failed, if it did.
    pub(crate) clock_unknown: Option<String>,
    exit_reason: Option<String>,
}

impl LeaderListener {
    /// Listens on this address, over TCP for members and over UDP for NTP requests.
    pub(crate) fn listen(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, _clock: NtpResponder::start(address)? })
    }

    /// Waits until `count` members have joined, and returns them sorted by name, because the order
    /// of arrival is random. `should_stop` receives the number of members so far; when it returns
    /// true, their runs are cancelled and the result is `None`.
    pub(crate) fn accept_members(
        &self,
        count: usize,
        should_stop: &mut dyn FnMut(usize) -> bool,
    ) -> Option<Vec<RemoteNode>> {
        let (mut members, mut pending) = (Vec::<RemoteNode>::new(), VecDeque::new());
        while members.len() < count {
            if should_stop(members.len()) {
                let why = "not all other nodes have joined, and the wait ended";
                for member in &mut members {
                    member.cancel(why);
                }
                return None;
            }
            self.accept(&mut pending);
            for _ in 0..pending.len() {
                let Some(pending_member) = pending.pop_front() else { break };
                match pending_member.receive_hello(&members) {
                    JoinOutcome::Joined(remote) if members.len() < count => members.push(*remote),
                    JoinOutcome::Pending(unfinished) => pending.push_back(unfinished),
                    // Invalid, or one member too many.
                    JoinOutcome::Joined(_) | JoinOutcome::Rejected => {}
                }
            }
            thread::sleep(POLL_INTERVAL);
        }
        members
            .sort_by(|one, other| natural_sort_key(&one.name).cmp(&natural_sort_key(&other.name)));
        Some(members)
    }

    /// Accepts the waiting connections without waiting for their first messages, so that an idle
    /// connection does not delay the others.
    fn accept(&self, pending: &mut VecDeque<PendingMember>) {
        for _ in 0..PENDING_MAX {
            let Ok((stream, address)) = self.listener.accept() else { return };
            // A connection that cannot be set up is closed.
            let Some(remote) = RemoteNode::new(stream, address) else { continue };
            if pending.len() == PENDING_MAX {
                pending.pop_front();
            }
            pending.push_back(PendingMember {
                remote: Box::new(remote),
                deadline: Instant::now() + HELLO_TIMEOUT,
            });
        }
    }
}

/// Connection that has not sent its first message.
struct PendingMember {
    remote: Box<RemoteNode>,
    deadline: Instant,
}

/// Outcome of the check of a pending member.
enum JoinOutcome {
    /// Member that has joined.
    Joined(Box<RemoteNode>),
    /// Connection without a first message so far.
    Pending(PendingMember),
    /// Refused or invalid; the connection is closed.
    Rejected,
}

impl PendingMember {
    fn receive_hello(mut self, members: &[RemoteNode]) -> JoinOutcome {
        match self.remote.messages.try_recv() {
            Ok(MemberMessage::Hello { protocol, name, host }) => {
                if let Some(reason) = refusal(protocol, &name, members) {
                    // The connection is closed in any case.
                    let _ = self.remote.send_message(&LeaderMessage::Refused(reason));
                    return JoinOutcome::Rejected;
                }
                (self.remote.name, self.remote.host) = (name, host);
                JoinOutcome::Joined(self.remote)
            }
            Err(TryRecvError::Empty) if Instant::now() < self.deadline => {
                JoinOutcome::Pending(self)
            }
            Ok(_) | Err(_) => JoinOutcome::Rejected,
        }
    }
}

/// Returns the reason for which a pending member is refused, or `None`.
fn refusal(protocol: u32, name: &str, members: &[RemoteNode]) -> Option<String> {
    if protocol != PROTOCOL_VERSION {
        Some("its version differs from the leader's; use the same on all hosts".to_owned())
    } else if !is_valid_name(name) {
        Some("its name is invalid; use letters, digits, '-', '_' and '.'".to_owned())
    } else if members.iter().any(|other| other.name == name) {
        Some(format!("another node is named {name}; choose another --name"))
    } else {
        None
    }
}

impl RemoteNode {
    /// Creates a pending member, and the thread that reads its messages; `None` if the connection
    /// or the thread cannot be set up.
    fn new(stream: TcpStream, address: SocketAddr) -> Option<Self> {
        stream.set_nonblocking(false).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_write_timeout(Some(MEMBER_TIMEOUT)).ok()?;
        let read_stream = stream.try_clone().ok()?;
        let (message_sender, messages) = mpsc::sync_channel(WAITING_MAX);
        let work = move || {
            let mut lines = BufReader::new(read_stream);
            loop {
                let mut line = String::new();
                match lines.by_ref().take(MEMBER_LINE_MAX).read_line(&mut line) {
                    Ok(1..) => {}
                    // The member is gone, which the timeout or the closed channel reveals.
                    _ => return,
                }
                let Some(message) = parse_line::<MemberMessage>(&line) else { return };
                if message_sender.send(message).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("member".into()).spawn(work).ok()?;
        Some(Self {
            name: String::new(),
            host: Host::default(),
            address,
            stream,
            messages,
            last_received: Instant::now(),
            entries: Vec::new(),
            states: Vec::new(),
            clocks: Vec::new(),
            clock_unknown: None,
            exit_reason: None,
        })
    }

    fn send_message(&mut self, message: &LeaderMessage) -> io::Result<()> {
        writeln!(self.stream, "{}", serde_json::to_string(message)?)?;
        self.stream.flush()
    }

    /// Discards what was collected in the last run, and sends the order of the next.
    pub(crate) fn send_order(&mut self, order: &NodeOrder) -> io::Result<()> {
        let tasks = order.set.tasks().len();
        self.entries = vec![Vec::new(); tasks];
        self.states = vec![TaskStatus::default(); tasks];
        (self.exit_reason, self.clock_unknown) = (None, None);
        self.clocks.clear();
        self.send_message(&LeaderMessage::Order(order.clone()))
    }

    /// Waits until the node is ready and its clock was measured, or could not be. The error is the
    /// reason: the node failed, disconnected or did not reply in time, or the user interrupted the
    /// run.
    pub(crate) fn await_ready(
        &mut self,
        timeout: Duration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<NodeReady, String> {
        let deadline = Instant::now() + timeout;
        let mut ready = None;
        loop {
            if let Some(ready) = ready.take_if(|_| self.has_clock_report()) {
                return Ok(ready);
            }
            match receive_until(
                &self.messages,
                deadline,
                is_interrupted,
                "its connection was closed",
            )? {
                MemberMessage::Answer(NodeReply::Ready(answer)) => ready = Some(answer),
                MemberMessage::Answer(NodeReply::Failed(why)) => return Err(why),
                other => self.process_message(other),
            }
        }
    }

    fn has_clock_report(&self) -> bool {
        !self.clocks.is_empty() || self.clock_unknown.is_some()
    }

    /// Returns the stored clock measurements of the run in order; the error is the reason of the
    /// latest failure if none succeeded.
    pub(crate) fn clocks(&self) -> Result<&[NodeClockOffset], &str> {
        match &self.clock_unknown {
            Some(why) if self.clocks.is_empty() => Err(why),
            _ => Ok(&self.clocks),
        }
    }

    pub(crate) fn send_start(&mut self, start: &NodeStartCommand) -> io::Result<()> {
        self.last_received = Instant::now();
        self.send_message(&LeaderMessage::Go(start.clone()))
    }

    /// Requests the node to end early. An error is ignored: an unreachable node is gone.
    pub(crate) fn stop(&mut self) {
        let _ = self.send_message(&LeaderMessage::Stop);
    }

    /// Sends the reason for which the run is cancelled. An error is ignored: an unreachable node is
    /// gone.
    pub(crate) fn cancel(&mut self, why: &str) {
        let _ = self.send_message(&LeaderMessage::CalledOff(why.to_owned()));
    }

    fn process_message(&mut self, message: MemberMessage) {
        self.last_received = Instant::now();
        match message {
            MemberMessage::Entries { task, words } => {
                let Some(entries) = self.entries.get_mut(task) else { return };
                let read = words.iter().take(ENTRIES_MAX).filter_map(PeriodEntry::from_words);
                entries.extend(read);
            }
            MemberMessage::State { tasks, ended } => {
                if tasks.len() == self.states.len() {
                    self.states = tasks;
                }
                self.exit_reason = ended.or(self.exit_reason.take());
            }
            MemberMessage::Clock(clock) => record_clock(&mut self.clocks, clock),
            MemberMessage::ClockUnknown(why) => self.clock_unknown = Some(why),
            // These messages are sent once, before the start.
            MemberMessage::Hello { .. } | MemberMessage::Answer(_) => {}
        }
    }

    /// Processes the queued messages of the member, at most [`WAITING_MAX`]. Records its exit if
    /// the connection was closed or the member has timed out.
    pub(crate) fn process_messages(&mut self) {
        for _ in 0..WAITING_MAX {
            match self.messages.try_recv() {
                Ok(message) => self.process_message(message),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.exit_reason.get_or_insert_with(|| "by closing the connection".to_owned());
                    return;
                }
            }
        }
        if self.last_received.elapsed() > MEMBER_TIMEOUT {
            self.exit_reason
                .get_or_insert_with(|| "without notice, or its network failed".to_owned());
        }
    }

    pub(crate) fn take_entries(&mut self, task: usize) -> Vec<PeriodEntry> {
        self.entries.get_mut(task).map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn task_state(&self, task: usize) -> TaskStatus {
        self.states.get(task).copied().unwrap_or_default()
    }

    pub(crate) fn exit_reason(&self) -> Option<String> {
        self.exit_reason.clone()
    }
}

impl Drop for RemoteNode {
    fn drop(&mut self) {
        // Ends the reading thread, which shares the connection. For a closed connection this fails,
        // which is harmless.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Records a clock measurement. If there are too many, every second one is removed, so that the
/// others still cover the whole run, from its first measurement on.
fn record_clock(clocks: &mut Vec<NodeClockOffset>, clock: NodeClockOffset) {
    if clocks.len() == CLOCKS_MAX {
        let mut at = 0;
        clocks.retain(|_| {
            at += 1;
            at % 2 == 1
        });
    }
    clocks.push(clock);
}

/// Returns a sort key by which `node2` is before `node10`.
fn natural_sort_key(name: &str) -> (&str, usize, &str, &str) {
    let words = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[words.len()..].trim_start_matches('0');
    (words, number.len(), number, name)
}

/// Returns true if a node may have this name, which is used in tables and files: 1 to 32 ASCII
/// letters, digits, `-`, `_` and `.`.
pub(crate) fn is_valid_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=32).contains(&name.len()) && name.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn hello(name: &str) -> String {
        let hello = MemberMessage::Hello {
            protocol: PROTOCOL_VERSION,
            name: name.to_owned(),
            host: Host::default(),
        };
        serde_json::to_string(&hello).unwrap() + "\n"
    }

    /// More than are kept say nothing, and one says half of what it should.
    #[test]
    fn idle_connections_do_not_keep_other_members_out() {
        let leader = LeaderListener::listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let connect = || TcpStream::connect(leader.address).unwrap();
        let idle: Vec<_> = (0..PENDING_MAX + 3).map(|_| connect()).collect();
        let (mut half, mut wrong, mut first, mut second) =
            (connect(), connect(), connect(), connect());
        half.write_all(&hello("half").as_bytes()[..20]).unwrap();
        wrong.write_all(b"\"who\"\n").unwrap();
        first.write_all(hello("first").as_bytes()).unwrap();
        second.write_all(hello("second").as_bytes()).unwrap();
        let begun = Instant::now();
        let members = leader.accept_members(2, &mut |_| begun.elapsed() > HELLO_TIMEOUT).unwrap();
        let names: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        // The others are let go, and the threads that read from them end.
        for mut stream in idle.into_iter().chain([half, wrong]) {
            stream.set_read_timeout(Some(MEMBER_TIMEOUT)).unwrap();
            let read = stream.read(&mut [0; 8]);
            let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
            assert!(read.as_ref().is_ok_and(|len| *len == 0) || read.as_ref().is_err_and(is_gone));
        }
        drop(members);
        assert!(matches!(first.read(&mut [0; 8]), Ok(0)));
    }

    /// Whoever is there first, a node of a name has the same number in each run.
    #[test]
    fn nodes_are_in_the_order_of_their_names() {
        let leader = LeaderListener::listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let join = |name: &str| {
            let mut stream = TcpStream::connect(leader.address).unwrap();
            stream.write_all(hello(name).as_bytes()).unwrap();
            stream
        };
        let names = ["node10", "other", "node02", "7", "node1"];
        let _streams = names.map(join);
        let begun = Instant::now();
        let members =
            leader.accept_members(names.len(), &mut |_| begun.elapsed() > HELLO_TIMEOUT).unwrap();
        let names: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["7", "node1", "node02", "node10", "other"]);
    }

    #[test]
    fn a_member_of_another_version_or_without_a_name_is_refused() {
        assert_eq!(refusal(PROTOCOL_VERSION, "one", &[]), None);
        let refused = |protocol, name| refusal(protocol, name, &[]).unwrap();
        assert!(refused(PROTOCOL_VERSION + 1, "one").contains("version"));
        assert!(refused(PROTOCOL_VERSION, "").contains("name"));
    }

    #[test]
    fn a_second_member_of_the_same_name_is_refused() {
        let leader = LeaderListener::listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let connect = || {
            let mut stream = TcpStream::connect(leader.address).unwrap();
            stream.write_all(hello("one").as_bytes()).unwrap();
            BufReader::new(stream)
        };
        let mut both = [connect(), connect()];
        let begun = Instant::now();
        let members = leader.accept_members(2, &mut |_| begun.elapsed() > 10 * POLL_INTERVAL);
        assert!(members.is_none());
        let mut lines = [String::new(), String::new()];
        both.iter_mut().zip(&mut lines).for_each(|(one, line)| drop(one.read_line(line)));
        assert!(lines.iter().any(|line| line.contains("another node is named one")), "{lines:?}");
    }

    #[test]
    fn a_member_that_reports_its_clock_all_the_time_does_not_fill_the_memory() {
        let mut clocks = Vec::new();
        for ahead_ns in 0..5_000 {
            record_clock(&mut clocks, NodeClockOffset { ahead_ns, error_ns: 1 });
            assert!(clocks.len() <= CLOCKS_MAX);
        }
        assert_eq!((clocks[0].ahead_ns, clocks[clocks.len() - 1].ahead_ns), (0, 4_999));
        assert!(clocks.is_sorted_by_key(|clock| clock.ahead_ns) && clocks.len() > CLOCKS_MAX / 2);
    }
}
