//! Choice of the event that counts in a trace of the kernel's block layer, which has each request
//! up to three times.
//!
//! 1. The event selected by the user counts.
//! 2. Else a queued request counts: as soon as one is seen, nothing else does. A trace of a busy
//!    disk begins with the completions of requests in flight, so the beginning decides nothing.
//! 3. Until then issues and completions are held. A trace that ends without a queued request counts
//!    its issues, else its completions.
//! 4. The number of held requests is bounded. Above the bound the earliest kind of event so far
//!    counts. A later record of an earlier kind is an error, so that no request is silently counted
//!    twice.

use crate::devices::Devices;
use crate::error::{Place, TraceError};
use crate::request::Request;
use crate::text::{Event, Found};
use std::collections::VecDeque;

/// Maximum number of held requests: 48 MiB.
const HELD_MOST: usize = 1 << 20;

/// Handling of a record.
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
    /// Their devices: those of records that never count do not belong to the trace.
    devices: Devices,
    /// Number of requests before the first bad record, its position, and the reason.
    first_bad: Option<(usize, Place, String)>,
    bad: u64,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.first_bad.is_none()
    }
}

/// Held requests that count after all.
#[derive(Debug, Default)]
pub struct Released {
    /// The requests, with times and devices as in the trace.
    pub requests: VecDeque<Request>,
    /// Names of their devices.
    pub devices: Devices,
    /// The first bad record, with the number of preceding requests.
    pub first_bad: Option<(usize, Place, String)>,
    /// Number of bad records.
    pub bad: u64,
}

/// The counted event, as far as it is known.
#[derive(Debug, Default)]
pub struct Events {
    counted: Option<Event>,
    /// True if the bound decided.
    is_guess: bool,
    issued: Held,
    completed: Held,
}

impl Events {
    /// Counts the event selected by the user, or finds one.
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

    /// Handling of a record with this event; `None` for records that are not a step of a request.
    ///
    /// # Errors
    /// It precedes the counted event in the sequence of a request.
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

    /// Devices of the held requests of this event.
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

    /// Holds the result of a record. True if no more can be held.
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

    /// Decides by the records so far, at the end of the trace (`is_end`) or because no more can be
    /// held.
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
