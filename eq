{"cc":"dctcp","ok":true,"feedback":false,"ranks":8,"bytes":200000,"ops":1,"rate_bps":50000000,"rtt_n -nan
