//! Threads that run discards in the members' own methods: one for each member. A thread starts with
//! the member's first discard and ends when its device is exchanged or the queue is dropped.
//! Discards of one member run one after the other; a stuck one delays no other member.

use super::Shared;
use crate::member::Member;
use crate::queue::{execute, finished};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use windrow_io::{MemberCommand, MemberDone};
use windrow_types::MemberId;

/// A discard, and the device of its member when it was submitted.
type Discard = (MemberCommand, Arc<dyn Member>);

/// Stack of a thread: small, because locked memory makes all of it resident, for up to 64 members.
const STACK_BYTES: usize = 256 << 10;

struct Helper {
    commands: Option<mpsc::Sender<Discard>>,
    /// Discards that have not ended.
    pending: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    fn start(shared: &Arc<Shared>, member: MemberId) -> io::Result<Self> {
        let (shared, pending) = (shared.clone(), Arc::new(AtomicUsize::new(0)));
        let (commands, inbox) = mpsc::channel::<Discard>();
        let left = pending.clone();
        let body = move || {
            for (command, device) in inbox {
                let done = execute(Some(&device), command);
                drop(device);
                // Decremented before the result is sent: its receiver may exchange the device.
                left.fetch_sub(1, Ordering::AcqRel);
                shared.ready().push(done);
                shared.signal();
            }
        };
        let thread = std::thread::Builder::new()
            .name(format!("discard-{}", member.0))
            .stack_size(STACK_BYTES)
            .spawn(body)?;
        Ok(Self {
            commands: Some(commands),
            pending,
            thread: Some(thread),
        })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // `execute` catches panics, so there is no result to look at.
            let _ = thread.join();
        }
    }
}

/// The helpers of all members.
#[derive(Default)]
pub(super) struct Discards {
    /// By member.
    helpers: Vec<Option<Helper>>,
}

impl Discards {
    /// Runs a discard on its member's thread. If no thread can be started the discard is skipped,
    /// as it is only advice, and answered here: the caller must not wait for the device.
    pub(super) fn send(
        &mut self,
        shared: &Arc<Shared>,
        command: MemberCommand,
        device: Arc<dyn Member>,
    ) -> Option<MemberDone> {
        let member = command.member;
        if self.helpers.len() <= member.index() {
            self.helpers.resize_with(member.index() + 1, || None);
        }
        let place = &mut self.helpers[member.index()];
        if place.is_none() {
            *place = Helper::start(shared, member).ok();
        }
        let Some((helper, sender)) = place
            .as_ref()
            .and_then(|helper| Some((helper, helper.commands.as_ref()?)))
        else {
            return Some(finished(command, Ok(())));
        };
        helper.pending.fetch_add(1, Ordering::AcqRel);
        shared.in_flight.fetch_add(1, Ordering::AcqRel);
        // The thread ends only after the sender is dropped.
        let Err(mpsc::SendError((command, _))) = sender.send((command, device)) else {
            return None;
        };
        helper.pending.fetch_sub(1, Ordering::AcqRel);
        shared.in_flight.fetch_sub(1, Ordering::AcqRel);
        Some(finished(command, Ok(())))
    }

    /// True if discards of the member have not ended.
    pub(super) fn is_busy(&self, member: MemberId) -> bool {
        self.helpers
            .get(member.index())
            .and_then(Option::as_ref)
            .is_some_and(|helper| helper.pending.load(Ordering::Acquire) > 0)
    }

    /// Ends the thread of a member that is not busy.
    pub(super) fn end(&mut self, member: MemberId) {
        if let Some(place) = self.helpers.get_mut(member.index()) {
            *place = None;
        }
    }

    /// Number of running threads.
    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        self.helpers.iter().flatten().count()
    }
}

impl Drop for Discards {
    fn drop(&mut self) {
        // All are signalled first, so that they end concurrently.
        self.helpers
            .iter_mut()
            .flatten()
            .for_each(|helper| helper.commands = None);
    }
}
