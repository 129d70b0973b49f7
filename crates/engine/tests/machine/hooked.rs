//! Members whose accesses are inspected first, and may be refused.

use super::Memory;
use windrow_io::*;
use windrow_types::MemberId;

/// Access to a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read { offset: u64, length: usize },
    Write { offset: u64, length: usize },
    Flush,
}

/// The members, their sectors, and the hook.
pub struct Hooked<'m, F> {
    pub memory: &'m mut Memory,
    pub sector_bytes: u32,
    pub hook: F,
}

impl<F: FnMut(&mut Memory, MemberId, Access) -> Result<(), MemberError>> MemberIo
    for Hooked<'_, F>
{
    fn member_count(&self) -> usize {
        self.memory.member_count()
    }
    fn is_present(&self, member: MemberId) -> bool {
        self.memory.is_present(member)
    }
    fn size(&self, member: MemberId) -> u64 {
        self.memory.size(member)
    }
    fn sector_bytes(&self, _: MemberId) -> u32 {
        self.sector_bytes
    }
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        (self.hook)(
            self.memory,
            member,
            Access::Read {
                offset,
                length: buf.len(),
            },
        )?;
        self.memory.read(member, offset, buf)
    }
    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError> {
        (self.hook)(
            self.memory,
            member,
            Access::Write {
                offset,
                length: buf.len(),
            },
        )?;
        self.memory.write(member, offset, buf)
    }
    fn flush(&mut self, member: MemberId) -> Result<(), MemberError> {
        (self.hook)(self.memory, member, Access::Flush)?;
        self.memory.flush(member)
    }
}
