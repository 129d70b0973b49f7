//! The receive buffer of one connection.

/// Bytes of the buffer.
pub(crate) const INTAKE_BYTES: usize = 256 << 10;
/// The longest message that must be in the buffer as a whole: a request with a copied payload
/// (options are shorter).
const WHOLE_BYTES: usize = 68 << 10;

const _: () = assert!(
    WHOLE_BYTES
        > crate::protocol::wire::REQUEST_HEADER_BYTES + crate::protocol::COPY_BYTES as usize
);
const _: () = assert!(
    WHOLE_BYTES
        > crate::protocol::wire::OPTION_HEADER_BYTES + crate::protocol::MAX_OPTION_BYTES as usize
);
const _: () = assert!(INTAKE_BYTES >= 2 * WHOLE_BYTES);

/// Received bytes that are not used yet: `start .. end` of a fixed buffer.
pub(crate) struct Intake {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Intake {
    pub(crate) fn new() -> Self {
        Self {
            buffer: vec![0; INTAKE_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Room for more. Never empty while the bytes present are less than one whole message.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.buffer.len() - self.start < WHOLE_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    pub(crate) fn received(&mut self, length: usize) {
        self.end += length;
        assert!(self.end <= self.buffer.len());
    }

    pub(crate) fn consume(&mut self, length: usize) {
        self.start += length;
        assert!(self.start <= self.end);
        if self.start == self.end {
            // Starting over keeps the same few pages in the cache.
            (self.start, self.end) = (0, 0);
        }
    }
}
