//! Choice of the event that counts in a trace of the kernel's block layer, which has each request
//! up to three times.
//!
//! 1. The event that the user names counts.
//! 2. Else a request that was queued counts: as soon as one is seen, nothing else does. A trace of
//!    a busy disk begins with the completions of what was in flight, so the beginning decides
//!    nothing.
//! 3. Until then issues and completions are held. A trace that ends without a queued request counts
//!    its issues, else its completions.
//! 4. What is held is bounded. Beyond the bound the earliest kind of event so far counts. An
//!    earlier kind that still comes is an error, so that no request is counted twice in silence.

use crate::devices::Devices;
use crate::error::{Place, TraceError};
use crate::request::Request;
use crate::text::{Event, Found};
use std::collections::VecDeque;

/// Most requests that are held: 48 MiB.
const HELD_MOST: usize = 1 << 20;

/// What is done with a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// It counts if it has this event.
    Count(Event),
    /// It may count.
    Hold(Event),
}

/// Requests of one kind of event.
#[derive(Debug, Default)]
struct Held {
    requests: VecDeque<Request>,
    /// Their devices: those of records that never count are not the trace's.
    devices: Devices,
    /// Requests before the first bad record, its place, and what is wrong with it.
    first_bad: Option<(usize, Place, String)>,
    bad: u64,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.first_bad.is_none()
    }
}

/// Held requests that turn out to count.
#[derive(Debug, Default)]
pub struct Released {
    /// The requests, their times and devices as in the trace.
    pub requests: VecDeque<Request>,
    /// Names of their devices.
    pub devices: Devices,
    /// The first bad record, after so many requests.
    pub first_bad: Option<(usize, Place, String)>,
    /// Bad records.
    pub bad: u64,
}

/// The event that counts, as far as it is known.
#[derive(Debug, Default)]
pub struct Events {
    counted: Option<Event>,
    /// True if the bound decided.
    is_guess: bool,
    issued: Held,
    completed: Held,
}

impl Events {
    /// Counts the event that the user names, or finds out.
    pub fn new(named: Option<Event>) -> Self {
        Self {
            counted: named,
            ..Self::default()
        }
    }

    /// The event that counts, once it is known.
    pub fn counted(&self) -> Option<Event> {
        self.counted
    }

    /// What to do with a record of this event; `None` for all that is no step of a request.
    ///
    /// # Errors
    /// It comes earlier in the life of a request than the one that was counted so far.
    pub fn choose(&mut self, event: Option<Event>) -> Result<Choice, TraceError> {
        match (self.counted, event) {
            (Some(counted), Some(event)) if self.is_guess && event < counted => {
                Err(TraceError::Event(format!(
                    "requests were counted when they were {}, as the first {HELD_MOST} have nothing earlier, but here one is {}",
                    counted.name(),
                    event.name()
                )))
            }
            (Some(counted), _) => Ok(Choice::Count(counted)),
            (None, Some(Event::Queued)) => {
                (self.counted, self.issued, self.completed) =
                    (Some(Event::Queued), Held::default(), Held::default());
                Ok(Choice::Count(Event::Queued))
            }
            (None, Some(event)) => Ok(Choice::Hold(event)),
            (None, None) => Ok(Choice::Count(Event::Queued)),
        }
    }

    /// The devices of what is held of this event.
    pub fn devices(&mut self, event: Event) -> &mut Devices {
        &mut self.held(event).devices
    }

    fn held(&mut self, event: Event) -> &mut Held {
        if event == Event::Completed {
            &mut self.completed
        } else {
            &mut self.issued
        }
    }

    /// Holds what a record gave. True if no more can be held.
    pub fn hold(&mut self, event: Event, found: Result<Found, String>, place: Place) -> bool {
        let held = self.held(event);
        match found {
            Ok(found) => held.requests.extend(found.into_iter().flatten()),
            Err(what) => {
                held.bad += 1;
                held.first_bad
                    .get_or_insert((held.requests.len(), place, what));
            }
        }
        self.issued.requests.len() + self.completed.requests.len() >= HELD_MOST
    }

    /// Decides by what was seen so far, at the end of the trace (`is_end`) or because no more can
    /// be held.
    pub fn decide(&mut self, is_end: bool) -> Released {
        if self.counted.is_some() {
            return Released::default();
        }
        let (issued, completed) = (
            std::mem::take(&mut self.issued),
            std::mem::take(&mut self.completed),
        );
        let (event, held) = if issued.is_empty() {
            (Event::Completed, completed)
        } else {
            (Event::Issued, issued)
        };
        if held.is_empty() {
            return Released::default();
        }
        (self.counted, self.is_guess) = (Some(event), !is_end);
        Released {
            requests: held.requests,
            devices: held.devices,
            first_bad: held.first_bad,
            bad: held.bad,
        }
    }
}
