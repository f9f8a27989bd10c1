"""What happens by itself when its time has come. The clock only ticks, and a tick only writes rows: the database decides."""
