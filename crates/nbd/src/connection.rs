//! The thread of one connection.
//!
//! 1. Negotiate, against a deadline.
//! 2. Receive from the socket; take whole requests within the bounds; submit them as one group;
//!    queue the replies that are ready.
//! 3. Send queued replies: at once for a client with one request at a time. For others, when a full
//!    group has gathered or the socket has no more input, whichever comes first. So no reply ever
//!    waits while its thread sleeps.
//! 4. Wait only when there is nothing else to do: for input, for the socket to take replies, or for
//!    the bell (room in the bounds, a full socket found by another thread, shutdown).
//! 5. At the end wait until nothing is in flight: a session is never dropped with requests in
//!    flight.

use crate::budget::Charges;
use crate::intake::Intake;
use crate::ledger::PIECE_BYTES;
use crate::link::Link;
use crate::protocol::{
    Action, Agreement, COPY_BYTES, Command, Denied, Exports, Handshake, HandshakeStep, Incoming,
    Question, Refusal, RequestParser, RequestStep, Rules, Violation,
};
use crate::server::Control;
use crate::socket::{Readiness, Received, wait};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;
use windrow_frontend::{ExportInfo, Session};
use windrow_io::{Completion, Op, Reply, Request, RequestError};
use windrow_types::VolumeId;

/// Limit of a receive after a large write: the data that follows its header is likely the next
/// payload.
const SHORT_RECEIVE_BYTES: usize = 4096;
/// Requests taken before they are submitted and answered. A client with all its requests in one
/// input continues only when replies come. Longer groups make client and server alternate instead
/// of overlapping; shorter ones pay more for locks and sends.
const GROUP_REQUESTS: usize = 8;
/// After this many groups of one request a client counts as one that sends a single request at a
/// time.
const LONE_GROUPS: u32 = 16;

/// Limit of the whole negotiation, as a multiple of the client's longest silence.
const NEGOTIATION_TIMES: u32 = 12;

/// End of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Ending {
    /// The client disconnected, or left between requests.
    #[error("closed by the client")]
    Closed,
    /// The client broke the protocol.
    #[error("{0}")]
    Rejected(#[from] Violation),
    /// No export was entered in time.
    #[error("the client did not finish negotiation in time")]
    HandshakeTimeout,
    /// The client did not send the rest of a request in time.
    #[error("the client stalled in the middle of a request")]
    Stalled,
    /// The client took none of the bytes of its replies in time.
    #[error("the client took nothing of its replies for too long")]
    Unread,
    /// The connection was closed for newer ones before an export was entered.
    #[error("negotiation was not finished, and newer clients needed the place")]
    Displaced,
    /// The server was shut down.
    #[error("the server was shut down")]
    Stopped,
    /// An administrator ended the connection.
    #[error("disconnected by an administrator")]
    Disconnected,
    /// The system refused to wait.
    #[error("system error")]
    System,
}

/// Runs a connection from greeting to end; `entered` is called with the export's name.
pub(crate) fn run(
    control: &Control,
    link: &Arc<Link>,
    (id, peer): (u64, &str),
    entered: impl FnOnce(&str),
) -> Ending {
    let mut intake = Intake::new();
    let mut catalog = Catalog {
        control,
        link,
        id,
        peer,
        session: None,
    };
    let agreement = match negotiate(link, &mut intake, &mut catalog) {
        Ok(agreement) => agreement,
        Err(ending) => return ending,
    };
    let Some(session) = catalog.session else {
        return Ending::System;
    };
    entered(&agreement.info.name);
    link.begin(agreement.structured);
    Transmission::new(control, link, intake, session, &agreement).run()
}

struct Catalog<'a> {
    control: &'a Control,
    link: &'a Arc<Link>,
    id: u64,
    peer: &'a str,
    session: Option<Box<dyn Session>>,
}

impl Catalog<'_> {
    fn must_serve(&self) -> Result<(), RequestError> {
        if self.control.is_stopping() {
            Err(RequestError::Stopped)
        } else {
            Ok(())
        }
    }
}

impl Exports for Catalog<'_> {
    fn list(&mut self) -> Vec<ExportInfo> {
        self.control.source.list()
    }

    fn info(&mut self, name: &str) -> Result<ExportInfo, RequestError> {
        self.must_serve()?;
        Ok(self.control.source.open(name, self.link.clone())?.info())
    }

    fn open(&mut self, name: &str) -> Result<ExportInfo, Denied> {
        self.must_serve()?;
        let session = self
            .control
            .source
            .enter(name, self.peer, self.link.clone())?;
        let info = session.info();
        self.control
            .enter(self.id, &info.name)
            .map_err(Denied::Limit)?;
        self.session = Some(session);
        Ok(info)
    }
}

fn negotiate(
    link: &Link,
    intake: &mut Intake,
    catalog: &mut Catalog<'_>,
) -> Result<Agreement, Ending> {
    let patience = catalog.control.options.handshake_timeout;
    let end = Instant::now() + patience * NEGOTIATION_TIMES;
    let mut deadline = Instant::now() + patience;
    let mut handshake = Handshake::new();
    let mut output = Vec::new();
    Handshake::greeting(&mut output);
    send_all(link, &mut output, deadline)?;
    loop {
        let (used, step) = handshake.advance(intake.bytes(), catalog, &mut output);
        intake.consume(used);
        send_all(link, &mut output, deadline)?;
        match step {
            // A client that looks at thousands of exports has thousands of questions.
            HandshakeStep::Continue => deadline = (Instant::now() + patience).min(end),
            HandshakeStep::Enter(agreement) => return Ok(*agreement),
            HandshakeStep::Abort => return Err(Ending::Closed),
            HandshakeStep::Reject(violation) => return Err(violation.into()),
            HandshakeStep::More => {
                if catalog.control.is_stopping() {
                    return Err(Ending::Stopped);
                }
                match link.socket.receive(intake.space()) {
                    Received::Bytes(length) => intake.received(length),
                    Received::End => return Err(Ending::Closed),
                    Received::Nothing => wait_until(
                        link,
                        Readiness {
                            readable: true,
                            ..Readiness::default()
                        },
                        deadline,
                    )?,
                }
            }
        }
    }
}

fn send_all(link: &Link, output: &mut Vec<u8>, deadline: Instant) -> Result<(), Ending> {
    let mut sent = 0;
    while sent < output.len() {
        match link.socket.send(&[IoSlice::new(&output[sent..])]) {
            Ok(Some(length)) => sent += length,
            Ok(None) => wait_until(
                link,
                Readiness {
                    writable: true,
                    ..Readiness::default()
                },
                deadline,
            )?,
            Err(_) => return Err(Ending::Closed),
        }
    }
    output.clear();
    Ok(())
}

fn wait_until(link: &Link, wanted: Readiness, deadline: Instant) -> Result<(), Ending> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Ending::HandshakeTimeout);
    }
    wait(&link.socket, &link.bell, None, Some(wanted), Some(left))
        .map(|_| ())
        .map_err(|_| Ending::System)
}

/// Reason that no further request was taken from the input.
enum Pause {
    /// The rest of a request is missing.
    Input,
    /// The bounds are reached.
    Room,
    /// There is no memory for the next request.
    Memory,
    /// The group is long enough.
    Group,
    /// This was the last request.
    End(Ending),
}

/// Number of requests that go to the volume together: reads of at most [`PIECE_BYTES`], or one
/// request.
fn first_part(requests: &[Request]) -> usize {
    let mut bytes = 0;
    let fits = |request: &&Request| {
        bytes += if let Op::Read { length, .. } = request.op {
            u64::from(length)
        } else {
            0
        };
        bytes <= u64::from(PIECE_BYTES)
    };
    requests.iter().take_while(fits).count().max(1)
}

struct Transmission<'a> {
    control: &'a Control,
    link: &'a Link,
    session: Box<dyn Session>,
    volume: VolumeId,
    intake: Intake,
    parser: RequestParser,
    /// The last request was a large write.
    large: bool,
    group: Vec<Incoming>,
    /// Requests submitted since the last send.
    unsent: usize,
    /// Groups of one request since the last longer one, up to [`LONE_GROUPS`].
    lone: u32,
    requests: Vec<Request>,
    ready: Vec<Completion>,
    /// The session works on this thread as far as it can.
    is_attended: bool,
    /// Charge of the next request, which is not registered yet.
    reserved: u32,
    /// Time since which the rest of a request has been missing.
    partial_since: Option<Instant>,
    /// Time since which the client has taken nothing of its replies, and the bytes that it had
    /// taken by then.
    blocked_since: Option<(Instant, u64)>,
}

impl<'a> Transmission<'a> {
    fn new(
        control: &'a Control,
        link: &'a Link,
        intake: Intake,
        session: Box<dyn Session>,
        agreement: &Agreement,
    ) -> Self {
        let info = &agreement.info;
        let rules = Rules {
            min_block: info.min_block,
            max_block: info.max_block,
            read_only: info.read_only,
            structured: agreement.structured,
            base_allocation: agreement.base_allocation,
        };
        let parser = RequestParser::new(rules, control.source.buffers().clone());
        let volume = info.volume;
        let is_attended = session.attend().is_some();
        Self {
            control,
            link,
            session,
            volume,
            intake,
            parser,
            large: false,
            group: Vec::new(),
            unsent: 0,
            lone: LONE_GROUPS,
            requests: Vec::new(),
            ready: Vec::new(),
            is_attended,
            reserved: 0,
            partial_since: None,
            blocked_since: None,
        }
    }

    fn run(mut self) -> Ending {
        let ending = loop {
            if let Err(ending) = self.round() {
                break ending;
            }
        };
        self.link.account.leave();
        let ending = self.drain(ending);
        // The session may have more work for other clients: this client need not wait for that.
        self.link.socket.cut();
        ending
    }

    fn round(&mut self) -> Result<(), Ending> {
        let pause = self.take_group();
        let count = self.group.len();
        if count > 0 {
            self.lone = if count > 1 {
                0
            } else {
                LONE_GROUPS.min(self.lone + 1)
            };
            self.unsent += count;
            self.submit_group();
        }
        // Also in the middle of a long payload: this thread also carries reads of other clients.
        self.progress();
        let alone = self.lone == LONE_GROUPS;
        // A payload that is received straight into its buffer may take long.
        if alone || self.unsent >= GROUP_REQUESTS || self.parser.is_inside() {
            self.send();
        }
        match pause {
            Pause::Group => Ok(()),
            Pause::Room => self.await_room(),
            Pause::Memory => self.await_memory(),
            Pause::End(ending) => Err(ending),
            // The rest of a request has likely arrived, and a client that sends many at once has
            // sent more. A client with a single request at a time has sent nothing, and a look
            // would only delay it.
            Pause::Input => self.await_input(!alone || self.is_partial()),
        }
    }

    /// Sends queued replies; true if there were several: then the client has likely sent more by
    /// now.
    fn send(&mut self) -> bool {
        let several = self.unsent > 1;
        // A read in pieces is queued once, and its last pieces may be ready at once, after the
        // others were sent.
        if self.unsent > 0 || !self.ready.is_empty() {
            self.unsent = 0;
            self.link.deliver(&mut self.ready);
        }
        several
    }

    /// Reason that no requests are taken from this client any more.
    fn farewell(&self) -> Option<Ending> {
        match (self.control.is_stopping(), self.link.is_leaving()) {
            (true, _) => Some(Ending::Stopped),
            (false, true) => Some(Ending::Disconnected),
            (false, false) => None,
        }
    }

    fn take_group(&mut self) -> Pause {
        let mut held = self.link.held();
        let stopping = self.farewell().is_some();
        while self.link.has_room(held) {
            // Thousands of requests of a client that has gone may be in the buffer: their replies
            // cannot be delivered.
            if self.link.is_broken() {
                return Pause::End(Ending::Closed);
            }
            if self.group.len() == GROUP_REQUESTS {
                return Pause::Group;
            }
            if !self.reserve() {
                return Pause::Memory;
            }
            let (used, step) = self.parser.next(self.intake.bytes());
            self.intake.consume(used);
            let mut incoming = match step {
                RequestStep::More => return Pause::Input,
                RequestStep::Disconnect => return Pause::End(Ending::Closed),
                RequestStep::Reject(violation) => return Pause::End(Ending::Rejected(violation)),
                RequestStep::Request(incoming) => incoming,
            };
            if stopping {
                incoming.action = Action::Refuse(Refusal::ShuttingDown);
            }
            let question = Question::from(&incoming);
            self.give_back_unused(&question);
            self.large = question.cost_bytes() > COPY_BYTES && incoming.command == Command::Write;
            held.requests += 1;
            held.bytes += u64::from(question.cost_bytes());
            self.group.push(incoming);
        }
        Pause::Room
    }

    /// Charges the next request before it takes memory; false if there is none for it now.
    fn reserve(&mut self) -> bool {
        let charge = self.parser.next_charge(self.intake.bytes());
        if self.reserved > 0 || charge == 0 {
            return true;
        }
        let is_taken = self.link.account.take(charge);
        if is_taken {
            self.reserved = charge;
        }
        is_taken
    }

    /// Returns the charge of a refused request.
    fn give_back_unused(&mut self, question: &Question) {
        let reserved = std::mem::take(&mut self.reserved);
        match question.charge() {
            0 => self.link.account.give(Charges::of(reserved)),
            charge => assert_eq!(
                charge, reserved,
                "a request takes memory that it was not charged for"
            ),
        }
    }

    fn submit_group(&mut self) {
        let session = &*self.session;
        let cache = |incoming: &Incoming| {
            // The request parser has checked that `offset + length` does not overflow.
            let inside = incoming.offset + u64::from(incoming.length) <= session.info().size_bytes;
            if inside {
                Ok(Reply::Done)
            } else {
                Err(Refusal::Volume(RequestError::OutOfRange))
            }
        };
        self.link
            .register(&mut self.group, self.volume, cache, &mut self.requests);
        while !self.requests.is_empty() {
            let rest = self.requests.split_off(first_part(&self.requests));
            self.session.submit(&mut self.requests, &mut self.ready);
            if !rest.is_empty() {
                self.requests = rest;
                self.progress();
            }
        }
    }

    /// Continues the session's work, and answers group by group.
    fn progress(&mut self) {
        while self.is_attended {
            let before = self.ready.len();
            let more = self.session.progress(&mut self.ready);
            if self.ready.len() > before {
                self.unsent = 0;
                self.link.deliver(&mut self.ready);
            }
            if !more {
                return;
            }
        }
    }

    /// True if the beginning of a request was received.
    fn is_partial(&self) -> bool {
        self.parser.is_inside() || !self.intake.is_empty()
    }

    fn receive(&mut self) -> Result<bool, Ending> {
        let received = self.receive_some()?;
        if received {
            self.partial_since = None;
        }
        Ok(received)
    }

    fn receive_some(&mut self) -> Result<bool, Ending> {
        let direct = if self.intake.is_empty() {
            self.parser.payload_space()
        } else {
            None
        };
        if let Some(space) = direct {
            return match self.link.socket.receive(space) {
                Received::Bytes(length) => {
                    self.parser.payload_received(length);
                    Ok(true)
                }
                Received::Nothing => Ok(false),
                Received::End => Err(Ending::Closed),
            };
        }
        let mut space = self.intake.space();
        if self.large {
            let length = space.len().min(SHORT_RECEIVE_BYTES);
            space = &mut space[..length];
        }
        match self.link.socket.receive(space) {
            Received::Bytes(length) => {
                self.intake.received(length);
                Ok(true)
            }
            Received::Nothing => Ok(false),
            Received::End => Err(Ending::Closed),
        }
    }

    /// Returns when something was received. `eager`: look before waiting.
    fn await_input(&mut self, mut eager: bool) -> Result<(), Ending> {
        loop {
            let farewell = self.farewell();
            let stopping = farewell.is_some();
            if (eager || stopping) && self.receive()? {
                return Ok(());
            }
            // A send takes long enough for a busy client to have sent more: a look is cheaper than
            // a wait that would return at once. A client with one request at a time has sent
            // nothing.
            if self.send() && eager && !stopping && self.receive()? {
                return Ok(());
            }
            if let Some(ending) = farewell
                && !self.link.wanted(|ledger| !ledger.is_idle())
            {
                return Err(ending);
            }
            let blocked = self.link.is_blocked();
            let wanted = Readiness {
                readable: true,
                writable: blocked,
                ..Readiness::default()
            };
            let came = self.wait(Some(wanted), self.is_partial())?;
            if came.writable {
                self.link.flush();
            }
            if (came.readable || came.hung_up) && self.receive()? {
                return Ok(());
            }
            // A client that got answers has likely sent more by now, if it sends many at once.
            eager = came.attended && self.lone < LONE_GROUPS;
        }
    }

    /// Returns when one more request may be taken.
    fn await_room(&mut self) -> Result<(), Ending> {
        self.send();
        while self
            .link
            .wanted(|ledger| !self.link.has_room(ledger.held()))
        {
            self.await_release()?;
        }
        Ok(())
    }

    /// Returns when there is memory for the next request. The client need not do anything
    /// meanwhile, unless it leaves replies unread.
    fn await_memory(&mut self) -> Result<(), Ending> {
        self.send();
        loop {
            // Less is needed after a release of its own memory meanwhile.
            self.link.wanted(|_| true);
            if self.reserve() {
                self.link.wanted(|_| false);
                return Ok(());
            }
            if let Some(ending) = self.farewell() {
                return Err(ending);
            }
            self.await_release()?;
        }
    }

    /// Waits until a part of the bounds may have been released.
    fn await_release(&mut self) -> Result<(), Ending> {
        let writable = self.link.is_blocked();
        let came = self.wait(
            Some(Readiness {
                writable,
                ..Readiness::default()
            }),
            false,
        )?;
        if came.hung_up {
            return Err(Ending::Closed);
        }
        if came.writable {
            self.link.flush();
        }
        Ok(())
    }

    /// Waits until nothing is in flight and all replies have left or cannot leave any more.
    fn drain(&mut self, mut ending: Ending) -> Ending {
        self.send();
        while self.link.wanted(|ledger| !ledger.is_idle()) {
            if self.link.is_broken() {
                // Only the volume can make progress now, and it always answers.
                self.wait(None, false).unwrap_or_default();
                continue;
            }
            let blocked = self.link.is_blocked();
            match self.wait(
                Some(Readiness {
                    writable: blocked,
                    ..Readiness::default()
                }),
                false,
            ) {
                Ok(came) if came.hung_up => self.link.give_up(),
                Ok(came) if came.writable => self.link.flush(),
                Ok(_) => {}
                Err(cause) => {
                    ending = cause;
                    self.link.give_up();
                }
            }
        }
        ending
    }

    /// Waits. With `partial` the client must send more within the stall time, and take something of
    /// its replies if the socket is full.
    fn wait(&mut self, wanted: Option<Readiness>, partial: bool) -> Result<Readiness, Ending> {
        let stall = self.control.options.stall_timeout;
        // Other clients' reads that end here, and bells, give the client no more time.
        let partial_since = partial.then(|| *self.partial_since.get_or_insert_with(Instant::now));
        let sent = self.link.sent_bytes();
        self.blocked_since = self
            .blocked_since
            .filter(|(_, before)| *before == sent && self.link.is_blocked() && wanted.is_some());
        if self.link.is_blocked() && wanted.is_some() {
            self.blocked_since
                .get_or_insert_with(|| (Instant::now(), sent));
        }
        let since = partial_since
            .into_iter()
            .chain(self.blocked_since.map(|(since, _)| since))
            .min();
        let time = since.map(|since| stall.saturating_sub(since.elapsed()));
        let session = self.is_attended.then(|| self.session.attend()).flatten();
        let came = wait(&self.link.socket, &self.link.bell, session, wanted, time)
            .map_err(|_| Ending::System)?;
        if came.attended {
            self.progress();
        }
        if !partial || came.readable {
            self.partial_since = None;
        }
        if came.hung_up {
            return Ok(came);
        }
        let is_over = |since: Instant| since.elapsed() >= stall;
        if self.blocked_since.is_some_and(|(since, before)| {
            before == self.link.sent_bytes() && !came.writable && is_over(since)
        }) {
            return Err(Ending::Unread);
        }
        if self.partial_since.is_some_and(is_over) {
            Err(Ending::Stalled)
        } else {
            Ok(came)
        }
    }
}
