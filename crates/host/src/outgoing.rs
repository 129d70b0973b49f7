//! Member commands between the engine and the members' queue.
//!
//! Submitting a batch to the kernel pins its pages and builds its requests. That takes hundreds of
//! microseconds, in which the engine could admit hundreds of blocks. So commands are *posted* here
//! under the engine's lock and *started* without it, by the same scheme as the inbox. A posting
//! thread tries to take the queue; if another one holds it, the thread returns, as the holder looks
//! again after its release. No command is left behind, and the queue has one caller at a time.
//!
//! Commands may be started in another order than the engine issued them: it never issues one that
//! depends on one in flight.

use crate::sessions::lock;
use std::sync::{Arc, Mutex, TryLockError};
use windrow_device::Member;
use windrow_device::queue::Queue;
use windrow_io::{MemberCommand, MemberDone};
use windrow_types::MemberId;

struct Starter {
    queue: Box<dyn Queue>,
    commands: Vec<MemberCommand>,
    done: Vec<MemberDone>,
}

/// The members' queue and the commands that wait to be started.
pub(crate) struct Outgoing {
    waiting: Mutex<Vec<MemberCommand>>,
    starter: Mutex<Starter>,
}

impl Outgoing {
    /// An empty queue of commands.
    pub(crate) fn new(queue: Box<dyn Queue>) -> Self {
        Self {
            waiting: Mutex::default(),
            starter: Mutex::new(Starter {
                queue,
                commands: Vec::new(),
                done: Vec::new(),
            }),
        }
    }

    /// Replaces a member's device; no command for it may be waiting or in flight.
    ///
    /// # Errors
    /// As [`Queue::exchange`].
    pub(crate) fn exchange(
        &self,
        member: MemberId,
        device: Option<Arc<dyn Member>>,
    ) -> std::io::Result<()> {
        lock(&self.starter).queue.exchange(member, device)
    }

    /// Adds commands; to be followed by [`Outgoing::start`].
    pub(crate) fn post(&self, commands: &mut Vec<MemberCommand>) {
        lock(&self.waiting).append(commands);
    }

    /// Starts waiting commands, or leaves them to the thread that is starting some. `ended` takes
    /// those that completed at once.
    ///
    /// # Errors
    /// An earlier caller panicked in the queue: commands may be lost.
    pub(crate) fn start(
        &self,
        mut ended: impl FnMut(&mut Vec<MemberDone>),
    ) -> Result<(), &'static str> {
        while !lock(&self.waiting).is_empty() {
            let mut guard = match self.starter.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::WouldBlock) => return Ok(()),
                Err(TryLockError::Poisoned(_)) => {
                    return Err("the members' queue failed while commands were started");
                }
            };
            let starter = &mut *guard;
            std::mem::swap(&mut *lock(&self.waiting), &mut starter.commands);
            starter
                .queue
                .submit(&mut starter.commands, &mut starter.done);
            starter.commands.clear();
            if !starter.done.is_empty() {
                ended(&mut starter.done);
                starter.done.clear();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use windrow_io::{IoTag, MemberOp};

    /// Answers everything at once and counts how many callers are inside.
    struct Counting {
        inside: Arc<AtomicUsize>,
    }

    impl Queue for Counting {
        fn exchange(&mut self, _: MemberId, _: Option<Arc<dyn Member>>) -> std::io::Result<()> {
            Ok(())
        }

        fn submit(&mut self, commands: &mut Vec<MemberCommand>, done: &mut Vec<MemberDone>) {
            assert_eq!(
                self.inside.fetch_add(1, Ordering::SeqCst),
                0,
                "one caller at a time"
            );
            done.extend(commands.drain(..).map(|c| MemberDone {
                member: c.member,
                tag: c.tag,
                buf: None,
                result: Ok(()),
            }));
            self.inside.fetch_sub(1, Ordering::SeqCst);
        }

        fn in_flight(&self) -> usize {
            0
        }
    }

    #[test]
    fn every_command_of_many_threads_is_started_once() {
        let outgoing = Outgoing::new(Box::new(Counting {
            inside: Arc::default(),
        }));
        let ended = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (outgoing, ended) = (&outgoing, &ended);
                scope.spawn(move || {
                    for i in 0..1000 {
                        let tag = IoTag(thread * 1000 + i);
                        outgoing.post(&mut vec![MemberCommand {
                            member: MemberId(0),
                            tag,
                            op: MemberOp::Flush,
                        }]);
                        outgoing
                            .start(|done| lock(ended).extend(done.drain(..).map(|d| d.tag.0)))
                            .expect("the queue works");
                    }
                });
            }
        });
        let mut ended = ended.into_inner().expect("no thread panicked");
        ended.sort_unstable();
        assert!(ended.into_iter().eq(0..4000));
    }
}
