"""Search"""
