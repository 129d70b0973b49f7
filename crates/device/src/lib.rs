//! Member devices: files, block devices, RAM, fault-injecting back ends.
