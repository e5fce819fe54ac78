"""What may leave a lane now, which object comes next, and when does a line stop?"""
